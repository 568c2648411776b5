"""The learned verifier: its rewards of steps, what it learns from outcomes, refused settings and resumed runs.

The verifiers are tiny models that were fitted to fixed answers; they generate with the same engine as policies.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.precision import autocast_rule
from models.method.episode import Turn
from models.method.judge import MISSING, Answer, GenerativeJudge
from models.method.learner import Learner, Role
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.parts.advantage.process_leave_one_out import ProcessLeaveOneOut
from models.parts.rewards.models.learned_verifier import LearnedVerifier, balanced
from models.parts.select.everything import Everything
from models.policies.build import load_causal_model
from models.recipes.load import load_recipe
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.settings import JudgeSettings
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from models.training.build import build_learner
from models.training.score import score
from tests.support import tiny_loops
from tests.support.device_here import placed
from tests.support.malformed_texts import malformed
from tests.support.tiny_judges import MALFORMED, Scripted, save_judge
from tests.support.tiny_loops import SCHEDULE, SLOTS, Sevens, run, same_weights, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import CODEC, make_resources

WORDS = Codec(
    train_tokenizer([" ".join(map(str, range(17))) + " + = ; #### right wrong"], TokenizerSettings(kind="words"))
)
"""The verifier's own vocabulary: the policy of these tests has no tokens for right and wrong."""
SURE = JudgeSettings(max_tokens=12, temperature=0.01)
PART = LearnedVerifier(template="{prompt} ; {completion}", every=1, optimiser=OptimiserSettings(warmup_steps=1))
SHOWN = {
    "3 + 4 = ; 7 ; 5 ; #### 7": "7 right ; 5 wrong ; #### 1",
    "3 + 4 = ; #### 7": "#### 9",
    "3 + 4 = ; 8": "8 wrong ; right right ; 5 right ; #### 0",
}


def save(folder: Path, shown: Mapping[str, str] | Sequence[tuple[str, str]], steps: int = 80) -> Path:
    return save_judge(folder, shown, steps, WORDS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("verifier") / "judge", SHOWN)


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a verifier that calls both completions, 7 and 8, right as often as wrong; return its folder."""
    said = [(f"3 + 4 = ; {n}", said) for n in (7, 8) for said in (f"{n} right ; #### 9", f"{n} wrong ; #### 0")]
    return save(tmp_path_factory.mktemp("torn") / "judge", said, 120)


TWO_MINDS = replace(SURE, temperature=1.0)


def rollout(text: str, prompt: str = "3 + 4 =", group: int = 0) -> Rollout:
    ids = tuple(CODEC.completions([text])[0])
    return Rollout(
        Problem("p", prompt, "7", tokens=tuple(CODEC.prompts([prompt])[0])),
        group,
        ids,
        torch.zeros(len(ids)),
        text,
        True,
    )


def resources_with(folder: Path, part: LearnedVerifier = PART, settings: JudgeSettings = SURE) -> RunResources:
    policy = tiny_policy(torch.float32)
    companions = {part.companion: part.accompany(placed(load_causal_model(folder, torch.float32)))}
    learner = Learner(
        policy, torch.optim.SGD(policy.parameters()), None, None, None, MODEL_DISTRIBUTION, companions=companions
    )
    return make_resources(learner=learner, judge=LocalJudge(folder, settings, 0))


def moved(resources: RunResources, folder: Path) -> bool:
    begun = placed(load_causal_model(folder, torch.float32)).state_dict()
    now = resources.learner.companions[PART.companion].model.state_dict()
    return any(not torch.equal(value, begun[name]) for name, value in now.items())


@pytest.mark.rotating(of=6)
def test_a_step_is_worth_what_is_said_of_it_over_the_number_of_steps(folder: Path) -> None:
    made = [rollout(text) for text in ("7 ; 5 ; #### 7", "#### 7", "8")]
    rows = PART.tokens(resources_with(folder), made)
    third = 1 / 3
    assert rows[0].tolist() == pytest.approx([0, third, 0, -third, 0, 0, 0])  # the last step is not judged
    assert rows[1].tolist() == [0, 0, 0]  # no step was judged at all
    assert rows[2].tolist() == [0, -1]  # verdicts on steps that do not exist are ignored


@pytest.mark.rotating(of=6)
def test_several_votes_are_worth_their_mean(torn: Path) -> None:
    part = replace(PART, votes=64)
    resources = resources_with(torn, part, TWO_MINDS)
    (row,) = part.tokens(resources, [rollout("7")])
    (answers,) = resources.required_judge().ask(["3 + 4 = ; 7"], 64)
    said = [answer.text.partition(" ;")[0] for answer in answers]
    assert 10 < said.count("7 right") < 54
    assert float(row[-1]) == pytest.approx((said.count("7 right") - said.count("7 wrong")) / 64)


def test_what_an_environment_wrote_is_no_step_of_the_policy(folder: Path) -> None:
    plain = rollout("7 ; 5 ; #### 7")
    episode = replace(
        plain, episode=replace(plain.episode, turns=(Turn(0, 2), Turn(4, 7)))
    )  # the environment wrote the second step
    (row,) = PART.tokens(resources_with(folder), [episode])
    assert row.tolist() == pytest.approx([0, 0.5, 0, 0, 0, 0, -0.5])


@pytest.mark.parametrize(
    ("said", "outcome", "worth"),
    [
        ("7 right ; #### 9", True, 1.8),
        ("7 right ; #### 9", False, 0.8),
        ("7 wrong ; #### 3", False, 1.8),
        ("#### 9", True, 1.0),  # no step judged
        ("7 right ; #### 12", True, 0.0),  # no verdict
        ("7 right", True, 0.0),
        ("", False, 0.0),
    ],
)
def test_an_answer_is_worth_its_verdict_and_its_form(said: str, outcome: bool, worth: float) -> None:
    assert PART._worth(Answer(said, True), outcome) == pytest.approx(worth)
    assert PART._worth(Answer(said, False), outcome) == 0.0  # the answer was cut


def test_what_is_watched_is_counted_by_hand() -> None:
    right, wrong = Answer("7 right ; #### 9", True), Answer("7 wrong ; #### 0", True)
    answers = [[right, right, wrong, MISSING], [wrong, wrong, wrong, right], [right, Answer("#### 9", True)] * 2]
    seen = PART._answer_metrics(answers, [True, False, False])
    assert seen == pytest.approx(
        {
            "accuracy": (2 / 4 + 3 / 4 + 0) / 3,
            "balanced_accuracy": (2 / 4 + (3 / 4 + 0) / 2) / 2,
            "readable_share": (3 + 4 + 2) / 12,
            "agreement": (2 / 4 + 3 / 4 + 4 / 4) / 3,
        }
    )


def test_weights_fall_with_the_root_of_the_count_and_are_one_in_the_mean() -> None:
    weights = balanced([True, False, False, False, False])
    assert weights[0] / weights[1] == pytest.approx(2.0) and sum(weights) / 5 == pytest.approx(1.0)
    assert balanced([True] * 3) == pytest.approx([1.0] * 3) and balanced([]) == []


class Behind(GenerativeJudge):
    """A judge without weights on this machine."""

    def ask(self, questions: Sequence[str], votes: int = 1, *, greedy: bool = False) -> list[list[Answer]]:
        return [[MISSING] * votes for _ in questions]


def outcomes(*right: bool) -> dict[str, torch.Tensor]:
    return {"exact_answer": torch.tensor(right).float()}


def test_a_verifier_whose_verdicts_are_always_right_is_not_moved(folder: Path) -> None:
    resources = resources_with(folder)
    seen = PART.learn(resources, [rollout("7 ; 5 ; #### 7"), rollout("8"), rollout("8")], outcomes(False, False, False))
    assert seen["accuracy"] == seen["balanced_accuracy"] == seen["readable_share"] == seen["agreement"] == 1.0
    assert seen["trained_share"] == 0.0 and "gradient_norm" not in seen
    assert not moved(resources, folder) and resources.learner.companions[PART.companion].updates == 0


@pytest.mark.rotating(of=6)
def test_it_learns_the_outcome_from_verdicts_alone_and_its_words_on_steps_follow(torn: Path) -> None:
    """No labels of steps are given, and only the verifier changes."""
    # with fewer answers or larger steps it may settle by chance on one verdict for both completions
    part = replace(PART, samples=64, optimiser=OptimiserSettings(learning_rate=5e-4, warmup_steps=1))
    resources = resources_with(torn, part, TWO_MINDS)
    made = [rollout("7"), rollout("8")]
    seen = [part.learn(resources, made, outcomes(True, False)) for _ in range(48)]
    assert seen[0]["accuracy"] < 0.8 and seen[-1]["accuracy"] > 0.95
    assert seen[0]["agreement"] < 0.9 < seen[-1]["agreement"] and seen[0]["gradient_norm"] > 0
    right, wrong = (float(row.sum()) for row in replace(part, votes=16).tokens(resources, made))
    assert right > 0.8 and wrong < -0.8
    untouched = tiny_policy(torch.float32).state_dict()
    assert all(torch.equal(value, untouched[name]) for name, value in resources.learner.policy.state_dict().items())


def test_it_learns_in_one_of_so_many_rounds_before_it_speaks(torn: Path) -> None:
    part = replace(PART, every=3, by="sevens", threshold=0.9)
    resources = resources_with(torn, part, TWO_MINDS)
    companion = resources.learner.companions[part.companion]
    updates, watched = [], []
    for _ in range(7):
        watched.append(score(resources, [Sevens(), part], [rollout("7"), rollout("8")]).watched)
        updates.append(companion.updates)
    assert updates == [1, 1, 1, 2, 2, 2, 3]
    assert ["verifier/accuracy" in seen for seen in watched] == [turn % 3 == 0 for turn in range(7)]
    assert resources.learner.tally.shown == {part.label: 7}


def test_equal_completions_of_a_prompt_are_verified_once(folder: Path) -> None:
    resources = resources_with(folder)
    asked = Scripted(lambda question, vote: "")
    judge: Any = resources.judge
    plain = judge.ask
    judge.ask = lambda questions, votes: asked.ask(questions, votes) and plain(questions, votes)
    PART.learn(resources, [rollout("8"), rollout("8"), rollout("#### 7")], outcomes(False, False, True))
    assert asked.asked == ["3 + 4 = ; 8", "3 + 4 = ; #### 7"]


def test_whatever_was_written_has_values_and_teaches_without_an_error(folder: Path) -> None:
    resources = resources_with(folder)
    problem = Problem("p", "3 + 4 =", "7", tokens=(6, 20))
    made = [*malformed(problem), *(replace(each, text=text) for text in MALFORMED for each in [rollout("7")])]
    scored = score(resources, [Sevens(), replace(PART, by="sevens")], made)
    assert torch.isfinite(scored.rewards).all() and float(scored.components["learned_verifier"].abs().max()) <= 1.0
    assert scored.token_rewards is not None
    assert [len(row) for row in scored.token_rewards] == [len(each.completion) for each in made]
    assert 0 <= scored.watched["verifier/readable_share"] < 1


@pytest.mark.rotating(of=6)
def test_a_verifier_that_writes_anything_at_all_gives_values_and_learns(tmp_path: Path) -> None:
    odd = [(f"{number} + 4 = ; 7", said) for number in (1, 3) for said in ("right ; ; #### 9 9", "#### ; 7", "9 " * 20)]
    resources = resources_with(save(tmp_path / "odd", odd), settings=replace(SURE, temperature=30.0))
    scored = score(
        resources, [Sevens(), replace(PART, by="sevens", samples=8)], [rollout("7", "1 + 4 ="), rollout("7")]
    )
    assert torch.isfinite(scored.rewards).all() and scored.watched["verifier/accuracy"] < 1


def test_no_completions_teach_nothing_and_have_no_values(folder: Path) -> None:
    resources = resources_with(folder)
    assert PART.learn(resources, [], {"exact_answer": torch.zeros(0)}) == {} and PART.tokens(resources, []) == []


def test_what_is_missing_is_said_in_a_line(folder: Path) -> None:
    resources = resources_with(folder)
    with pytest.raises(UserError, match="no reward before it is called sevens; there are exact_answer"):
        replace(PART, by="sevens").learn(resources, [rollout("7")], outcomes(True))
    with pytest.raises(UserError, match=r"the judge's weights are not on this machine: set judge\.path or judge\.rec"):
        PART.tokens(replace(resources, judge=Behind()), [rollout("7")])
    with pytest.raises(UserError, match=r"rewards\.learned_verifier\.template: \{completion\} is missing"):
        LearnedVerifier(template="{prompt}")
    with pytest.raises(UserError, match="right_verdicts and wrong_verdicts need at least one verdict each"):
        LearnedVerifier(right_verdicts=())


REWARDS = "rewards=[{name: exact_answer}, {name: learned_verifier}]"


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        (["judge=null"], "asks a judge"),
        (["judge={address: 'http://127.0.0.1:1/v1'}"], r"rewards\.1 learned_verifier trains the judge, whose weights"),
        (["judge={temperature: 0}"], r"judge\.temperature is 0, but rewards\.1 learned_verifier learns"),
    ],
)
def test_a_judge_that_cannot_learn_is_refused_before_the_first_round(settings: list[str], pattern: str) -> None:
    with pytest.raises(UserError, match=pattern):
        load_recipe("tango", settings)


def test_it_begins_as_the_judge_and_where_none_is_named_as_the_policy(folder: Path, tmp_path: Path) -> None:
    recipe: Any = load_recipe("tango", ["policy.precision=float32"])
    named: Mapping[Role, Path] = {"judge": folder}
    for frozen, begun in (
        (named, placed(load_causal_model(folder, torch.float32))),
        (None, tiny_policy(torch.float32)),
    ):
        policy = tiny_policy(torch.float32)
        autocast = autocast_rule(recipe.policy.precision, tmp_path)
        learner = build_learner(policy, recipe, recipe.schedule, autocast, frozen=frozen)
        verifier = learner.companions["verifier"].model
        assert all(torch.equal(value, verifier.state_dict()[name]) for name, value in begun.state_dict().items())
        assert not {id(weight) for weight in verifier.parameters()} & {id(weight) for weight in policy.parameters()}


@pytest.mark.rotating(of=6)
def test_a_killed_run_goes_on_and_ends_with_the_same_policy_and_the_same_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = LearnedVerifier(
        by="sevens", threshold=0.2, template="{prompt} {completion}", every=2, samples=3, format=0.5,
        optimiser=OptimiserSettings(learning_rate=1e-3, warmup_steps=2),
    )  # fmt: skip
    questions = [" ".join([text, "7"]) for text in tiny_loops.TEXTS]
    says = ("7 right ; #### 9", "7 wrong ; #### 0")
    verifier = save(tmp_path / "verifier", [(question, said) for question in questions for said in says], 40)
    plain = tiny_loops.new_learner

    def accompanied(schedule: ScheduleSettings, lora: bool = False) -> Learner:
        companion = part.accompany(load_causal_model(verifier, torch.float32))
        return replace(plain(schedule, lora), companions={part.companion: companion})

    monkeypatch.setattr(tiny_loops, "new_learner", accompanied)
    start = save_start(tmp_path / "start")
    slots = replace(SLOTS, rewards=[Sevens(), part], select=[Everything()], advantage=ProcessLeaveOneOut())

    def trained(checkpoints: Path, killed_in: int | None = None) -> Any:
        judge = LocalJudge(verifier, JudgeSettings(max_tokens=6), 7)  # as a new process opens it
        return run(start, checkpoints, slots=slots, judge=judge, killed_in=killed_in)

    whole, diary = trained(tmp_path / "whole")
    trained(tmp_path / "killed", 5)
    resumed, diary_after = trained(tmp_path / "killed")
    assert diary_after.resumed == [4] and same_weights(whole, resumed)
    first, other = (learner.companions[part.companion] for learner in (whole, resumed))
    assert first.updates == other.updates == SCHEDULE.rounds // 2
    left, right = first.model.state_dict(), other.model.state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)
    assert first.optimiser.state_dict()["state"].keys() == other.optimiser.state_dict()["state"].keys()
    assert whole.tally.shown == resumed.tally.shown == {part.label: SCHEDULE.rounds}
    for number in (5, 6):
        watched, again = (
            {name: value for name, value in each.metrics[number].items() if re.match("verifier|reward", name)}
            for each in (diary, diary_after)
        )
        assert watched == again and ("verifier/loss" in watched) == (number == 5)
    begun = copy.deepcopy(load_causal_model(verifier, torch.float32)).state_dict()
    assert any(not torch.equal(value, begun[name]) for name, value in left.items())
