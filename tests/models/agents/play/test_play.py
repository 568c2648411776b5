"""Playing of episodes: ids are passed on unchanged, only the policy's tokens are trained on, limits cut episodes."""

import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.agents.play.play import play
from models.base.errors import UserError
from models.base.seeds import round_seed
from models.engines.engine import Engine, EngineSettings, Sampling
from models.method.episode import Episode
from models.method.rollout import Rollout
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.rollouts.episodes import Episodes
from models.parts.rollouts.sample import Sample
from tests.support.tiny_episodes import ENDING, Chatter, Listening, episodes, gap, hang
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, SLOTS, run, same_weights, save_start
from tests.support.tiny_models import NO_VLLM
from tests.support.tiny_resources import make_resources


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_start(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def engine(start: Path) -> Listening:
    return Listening(start, EngineSettings(precision="float32"), end=ENDING.ends)


def draw(engine: Engine, source: Episodes, number: int = 0) -> list[Rollout]:
    return source(make_resources(engine, codec=ENDING), PROBLEMS[:4], number)


def test_the_next_asks_ids_begin_with_all_earlier_ids(engine: Listening) -> None:
    made = draw(engine, episodes(Chatter(lasts=3)))
    assert max(len(rollout.episode.turns) for rollout in made) == 3
    whole = {(*rollout.problem.tokens, *rollout.completion) for rollout in made}
    for ask, generated in engine.asked:
        said = (*ask.prompt, *generated.tokens)
        assert any(ids[: len(said)] == said for ids in whole)
    later = [ask for ask, _ in engine.asked if len(ask.prompt) > len(PROBLEMS[2].tokens)]
    earlier = {(*ask.prompt, *generated.tokens) for ask, generated in engine.asked}
    assert later and all(any(tuple(ask.prompt)[: len(ids)] == ids for ids in earlier) for ask in later)


def test_between_two_turns_stands_what_the_environment_said_and_nothing_else(engine: Listening) -> None:
    for rollout in draw(engine, episodes(Chatter(lasts=3, words="9 = ;"))):
        for turn, following in zip(rollout.episode.turns, rollout.episode.turns[1:], strict=False):
            between = rollout.completion[turn.stop : following.start]
            assert between == tuple(ENDING.inside(["9 = ;"])[0]) and rollout.completion[turn.stop - 1] in ENDING.ends
        flags = [
            any(turn.start <= place < turn.stop for turn in rollout.episode.turns)
            for place in range(len(rollout.completion))
        ]
        assert list(rollout.written) == flags and flags[-1]
        assert rollout.trained == (None if all(flags) else tuple(flags))
        assert rollout.text == "\n".join(
            ENDING.text([rollout.completion[turn.start : turn.stop] for turn in rollout.episode.turns])
        )


def test_over_whole_episodes_engine_and_learner_say_the_same(engine: Listening) -> None:
    assert gap(draw(engine, episodes(Chatter(lasts=3)))) <= 1e-5


@pytest.mark.rotating(of=2)
@NO_VLLM
@pytest.mark.slow
@pytest.mark.xdist_group("vllm")
def test_vllm_plays_the_same_way(start: Path) -> None:
    from models.engines.vllm_engine import VllmEngine

    vllm = VllmEngine(start, EngineSettings(memory_share=0.1, precision="float32"), longest=64, end=ENDING.ends, seed=0)
    try:
        made = draw(vllm, episodes(Chatter(lasts=3)))
        assert max(len(rollout.episode.turns) for rollout in made) == 3 and gap(made) <= 1e-5
    finally:
        vllm.close()


def test_an_environments_first_words_stand_behind_the_prompt_and_are_not_trained_on(engine: Listening) -> None:
    for rollout in draw(engine, episodes(Chatter(lasts=1, greeting="5 + 5"))):
        assert list(rollout.completion[: rollout.episode.turns[0].start]) == ENDING.inside(["5 + 5"])[0]
        assert rollout.trained is not None and not any(rollout.trained[: rollout.episode.turns[0].start])


def test_rewards_and_states_are_those_of_the_turns(engine: Listening) -> None:
    made = draw(engine, episodes(Chatter(lasts=3)))
    for rollout in made:
        said = ENDING.text([rollout.completion[turn.start : turn.stop] for turn in rollout.episode.turns])
        ended = len(rollout.episode.turns) if rollout.episode.cut != "tokens" else len(rollout.episode.turns) - 1
        assert [turn.reward for turn in rollout.episode.turns[:ended]] == [
            float(text.count("7")) for text in said[:ended]
        ]
        assert rollout.episode.turns[0].state == "begun"
        assert rollout.episode.solved is (None if rollout.episode.cut else "7" in said[-1])


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("turns", [1, 4])
def test_an_episode_of_one_turn_is_a_sample_bit_for_bit(start: Path, tmp_path: Path, turns: int) -> None:
    plain = replace(SLOTS, rollouts=Sample(prompts=4, group_size=4, max_tokens=5))
    played = replace(SLOTS, rollouts=episodes(Chatter(lasts=1), max_tokens=5, turns=turns))
    runs = [
        run(start, tmp_path / name, slots=slots, codec=ENDING)[0]
        for name, slots in (("plain", plain), ("played", played))
    ]
    assert same_weights(*runs)


@pytest.mark.rotating(of=6)
def test_a_run_that_is_killed_between_turns_ends_with_the_same_weights(start: Path, tmp_path: Path) -> None:
    left = 0

    def killed(turn: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            signal.raise_signal(signal.SIGINT)

    slots = replace(SLOTS, rollouts=episodes(Chatter(lasts=3, act=killed)))
    whole, _ = run(start, tmp_path / "whole", slots=slots, codec=ENDING)
    left = 130
    run(start, tmp_path / "killed", slots=slots, killed_in=-1, codec=ENDING)
    assert left == 0
    resumed, diary = run(start, tmp_path / "killed", slots=slots, codec=ENDING)
    assert 0 < diary.resumed[0] < SCHEDULE.rounds
    assert same_weights(whole, resumed)


def one_of(rollouts: Sequence[Rollout], cut: str) -> Rollout:
    return next(rollout for rollout in rollouts if rollout.episode.cut == cut)


def test_a_turn_that_is_cut_ends_its_episode_and_is_answered_by_nobody(engine: Listening) -> None:
    heard: list[str] = []
    made = draw(engine, episodes(Chatter(lasts=9, act=heard.append), turn_tokens=2, turns=9, max_tokens=60))
    cut = one_of(made, "tokens")
    assert (
        not cut.finished
        and cut.episode.turns[-1].stop - cut.episode.turns[-1].start == 2
        and cut.completion[-1] not in ENDING.ends
    )
    assert all(turn.stop - turn.start <= 2 for rollout in made for turn in rollout.episode.turns)
    assert len(heard) == sum(len(rollout.episode.turns) - (rollout.episode.cut == "tokens") for rollout in made)
    asked = [tuple(ask.prompt) for ask, _ in engine.asked]
    assert not any(ids[: len(whole)] == whole for ids in asked if (whole := (*cut.problem.tokens, *cut.completion)))


def test_no_episode_is_longer_than_it_may_be_and_none_ends_with_the_environments_words(engine: Listening) -> None:
    made = draw(engine, episodes(Chatter(lasts=9, words="3 + 4 5 6 7 8 9"), turns=9, max_tokens=20))
    assert {rollout.episode.cut for rollout in made} == {"tokens"}
    assert all(len(rollout.completion) <= 20 and rollout.written[-1] for rollout in made)
    assert any(
        rollout.completion[-1] in ENDING.ends for rollout in made
    )  # the environment's answer had no room after a complete turn


@pytest.mark.parametrize(
    "rule, finished, trains", [("kept", True, True), ("wrong", False, True), ("masked", False, False)]
)
def test_an_episode_that_had_all_its_turns_counts_as_the_recipe_says(
    engine: Listening, rule: Any, finished: bool, trains: bool
) -> None:
    made = draw(engine, episodes(Chatter(lasts=9), turns=2, at_last_turn=rule))
    ended = [rollout for rollout in made if rollout.episode.cut == "turns"]
    assert ended and all(len(rollout.episode.turns) == 2 for rollout in ended)
    assert all(rollout.finished is finished and bool(rollout.trained_tokens) is trains for rollout in ended)


def test_an_environment_that_hangs_ends_its_own_episode_alone(engine: Listening) -> None:
    calls, began = 0, time.monotonic()

    def stuck(turn: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            hang(turn)

    closed: list[int] = []
    made = draw(engine, episodes(Chatter(lasts=2, act=stuck, closed=closed), seconds=0.2, max_tokens=40))
    assert time.monotonic() - began < 30 and len(closed) == len(made) == 16
    assert [rollout.episode.cut for rollout in made].count("time") == 1
    assert one_of(made, "time").trained_tokens == 0 and not one_of(made, "time").finished
    assert [rollout.episode.cut for rollout in made].count("") > 8


def test_an_environment_that_fails_ends_its_own_episode_alone(engine: Listening) -> None:
    calls = 0

    def break_down(turn: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("no more")

    made = draw(engine, episodes(Chatter(lasts=2, act=break_down), when_stuck="kept", max_tokens=40))
    assert [rollout.episode.cut for rollout in made].count("error") == 1
    assert one_of(made, "error").finished and one_of(made, "error").trained_tokens


@pytest.mark.parametrize(
    "worth",
    [10**400, float("inf"), float("nan"), 1e39, "much", None],
    ids=["huge", "inf", "nan", "1e39", "text", "none"],
)
def test_a_reward_that_training_cannot_hold_ends_its_own_episode_alone(engine: Listening, worth: object) -> None:
    calls = iter(range(1000))
    environment = Chatter(lasts=2, pays=lambda turn: worth if next(calls) == 2 else 0.5)
    made = draw(engine, episodes(environment, when_stuck="kept", max_tokens=40))
    assert [rollout.episode.cut for rollout in made].count("error") == 1
    assert {turn.reward for rollout in made for turn in rollout.episode.turns} <= {0.0, 0.5}


def test_an_answer_that_a_tool_gives_away_earns_nothing(engine: Listening) -> None:
    source = episodes(Chatter(lasts=2, words="#### 7"), turns=2, max_tokens=40)
    made = [rollout for rollout in draw(engine, source) if len(rollout.episode.turns) == 2 and not rollout.episode.cut]
    assert made and all("####" in ENDING.text([rollout.completion])[0] for rollout in made)
    silent = [rollout for rollout in made if "####" not in rollout.text]
    assert silent and not ExactAnswer()(make_resources(engine), silent).any()


def test_the_same_seed_plays_the_same_episodes(engine: Listening) -> None:
    settings = episodes(Chatter(lasts=3)).episodes
    sampling = Sampling(max_tokens=48, samples=4)

    def played(seed: int) -> list[Episode]:
        return [e for group in play(engine, ENDING, settings, PROBLEMS[:4], sampling, seed) for e in group]

    first, again, other = (played(seed) for seed in (round_seed(7, 0), round_seed(7, 0), round_seed(7, 1)))
    assert [e.tokens for e in first] == [e.tokens for e in again] != [e.tokens for e in other]


def test_a_greeting_longer_than_an_episode_is_refused_by_a_line(engine: Listening) -> None:
    with pytest.raises(UserError, match=r"rollouts\.max_tokens is 5, but environment chatter begins with 9 tokens"):
        draw(engine, episodes(Chatter(greeting="5 + 5 + 5 + 5 + 5"), max_tokens=5))
