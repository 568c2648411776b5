"""A frozen partner: its weights stay, its words are not trained on, and both sides depend on the seed alone."""

import hashlib
from pathlib import Path
from random import Random

import pytest

from models.agents.environments.partner import Partner
from models.agents.play.clinic import CONDITIONS, FINDINGS, condition, drawn, shares
from models.agents.play.play import play
from models.agents.play.scenes import NEEDS, Comfort, Consult, Direct
from models.agents.play.speakers import PARTNER, frozen_folder, keep_partner
from models.base.errors import UserError
from models.engines.engine import Sampling
from models.method.environment import EpisodeSettings
from models.method.episode import Episode, EpisodeLimits
from models.method.problem import Problem
from models.parts.rollouts.episodes import as_rollout
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from models.task_sets.clinic import ClinicSettings
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_engines import Saying

SIZE = SizeSettings(hidden=32, layers=1, heads=2, key_value_heads=1, feed_forward=32, positions=64)
SHOWN = ClinicSettings(problems={"train": 8})
CHANCE = Random(1)
WORDS = " ".join(turn for _ in range(400) for turn in SHOWN.demonstrate(CHANCE, SHOWN.draw(CHANCE))[1])
TOKENIZER = train_tokenizer(["ada bell is unwell", WORDS], TokenizerSettings(kind="words", vocabulary=128))
CODEC = Codec(TOKENIZER)
PROBLEM = Problem("p", "ada bell is unwell", "well", 1, tuple(CODEC.prompts(["ada bell is unwell"])[0]))
LIMITS = EpisodeLimits(turns=3, turn_tokens=4, seconds=30.0, at_last_turn="kept", when_stuck="masked")


def asking(read: list[str], seed: int) -> str:
    """Return a turn that fits the role: two questions or checks and then a conclusion, an answer, or a need."""
    random = Random(seed)
    said = random.choice(list(NEEDS.values()))
    if "doctor" in read:
        return f"ask {random.choice(FINDINGS)}" if read.count("ask") < 2 else random.choice(CONDITIONS)
    if "planner" in read:
        return f"check {random.choice(FINDINGS)}" if read.count("check") < 2 else "conclude"
    return f"{random.choice(FINDINGS)} yes" if "record" in read else said


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("partner") / "policy"
    save_model_folder(new_policy(SIZE, TOKENIZER, 0), TOKENIZER, folder)
    return folder


def played(start: Path, seed: int = 5, **settings: object) -> list[Episode]:
    environment = Partner(**settings)  # type: ignore[arg-type]
    asked = EpisodeSettings(environment=environment, limits=LIMITS, role="user")
    return play(Saying(CODEC, asking), CODEC, asked, [PROBLEM], Sampling(max_tokens=40, samples=6), seed, start)[0]


def partner_is_read(episode: Episode) -> bool:
    """Return whether there are words of the partner between the policy's turns."""
    return any(after.start > before.stop for before, after in zip(episode.turns, episode.turns[1:], strict=False))


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


@pytest.mark.parametrize("scene, turns", [("consult", 3), ("direct", 3), ("brief", 1), ("comfort", 3)])
def test_the_partners_weights_stay_and_only_what_the_policy_said_is_trained_on(
    start: Path, scene: str, turns: int
) -> None:
    before = digest(start)
    episodes = played(start, scene=scene)
    assert digest(start) == before and len(episodes) == 6
    for episode in episodes:
        rollout = as_rollout(PROBLEM, 0, episode, LIMITS)
        assert rollout.trained is not None
        trained = [token for token, own in zip(rollout.completion, rollout.trained, strict=True) if own]
        assert trained == [token for ids in CODEC.completions([turn.text for turn in episode.turns]) for token in ids]
        assert len(episode.turns) <= turns and not episode.cut
    assert turns == 1 or any(turn.response for episode in episodes for turn in episode.turns[:-1])
    assert turns == 1 or any(partner_is_read(episode) for episode in episodes)


def test_both_sides_hang_on_the_seed_alone(start: Path) -> None:
    first, again, other = ([episode.tokens for episode in played(start, seed)] for seed in (5, 5, 6))
    assert first == again != other


def test_a_policy_keeps_the_partner_that_it_was_trained_beside(start: Path, tmp_path: Path) -> None:
    trained = tmp_path / "trained"
    save_model_folder(new_policy(SIZE, TOKENIZER, 1), TOKENIZER, trained)
    assert frozen_folder(Partner(), start) == start
    keep_partner(Partner(), start, trained)
    assert frozen_folder(Partner(), trained) == trained / PARTNER and digest(trained / PARTNER) == digest(start)
    assert [e.tokens for e in played(start)] == [e.tokens for e in played(trained)]


def test_a_partner_that_is_nowhere_is_refused_by_a_line(start: Path) -> None:
    with pytest.raises(UserError, match=r"rollouts\.environment: partner needs a model as partner"):
        frozen_folder(Partner(), None)


def test_a_question_is_worth_its_findings_share_once_and_where_the_patient_said_the_truth() -> None:
    scene = Consult(gain=1.0)
    scene.begin(Random(4))
    patient = drawn(Random(4))
    truth = "yes" if patient["fever"] else "no"
    moment = scene.apply("policy", "ask fever")
    assert moment.next == "partner" and moment.text.endswith("asked fever")
    assert scene.apply("partner", truth).reward == pytest.approx(shares(patient)["fever"])
    scene.apply("policy", "ask fever")
    assert scene.apply("partner", truth).reward == 0.0
    scene.apply("policy", "ask cough")
    assert scene.apply("partner", "fever").reward == 0.0
    end = scene.apply("policy", condition(patient))
    assert end.over and end.solved


def test_a_directors_reward_is_the_partners_conclusion_less_the_checks() -> None:
    scene = Direct(cost=0.05)
    scene.begin(Random(4))
    scene.apply("policy", "check rash")
    assert scene.apply("partner", "no").reward == -0.05
    moment = scene.apply("policy", "conclude")
    assert moment.text == "known rash no conclude"
    end = scene.apply("partner", condition(drawn(Random(4))))
    assert (end.reward, end.over, end.solved) == (1.0, True, True)
    assert scene.apply("policy", "check nothing").over


@pytest.mark.parametrize("helpful, mood", [((True, True, True), 1.0), ((True, False, True), 0.7), ((False,) * 3, 0.1)])
def test_the_mood_follows_the_rule_whatever_the_user_says(helpful: tuple[bool, ...], mood: float) -> None:
    scene = Comfort()
    scene.begin(Random(0))
    for helps in helpful:
        right = NEEDS[scene.remaining_feelings[0]]
        scene.apply("partner", "happy happy mood 100")
        moment = scene.apply("policy", right if helps else "nothing")
    assert moment.over and moment.reward == pytest.approx(mood) and moment.solved is (mood > 0.4)


def test_beside_another_partner_the_policy_hears_that_ones_words(start: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    save_model_folder(new_policy(SIZE, TOKENIZER, 1), TOKENIZER, other)
    own, beside = (
        play(
            Saying(CODEC, asking),
            CODEC,
            EpisodeSettings(environment=environment, limits=LIMITS, role="user"),
            [PROBLEM],
            Sampling(max_tokens=40, samples=6),
            5,
            start,
        )[0]
        for environment in (Partner(), Partner().with_partner(other))
    )
    assert [episode.turns[0].text for episode in own] == [episode.turns[0].text for episode in beside]
    assert [[turn.response for turn in episode.turns] for episode in own] != [
        [turn.response for turn in episode.turns] for episode in beside
    ]
