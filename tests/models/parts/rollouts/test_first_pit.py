"""The first pit of a wrong answer, the step that lowers its worth most: how it is found, paired and valued."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.slots import Slots
from models.parts.advantage.reward import NoAdvantage
from models.parts.objective.dpo import Dpo
from models.parts.reference.frozen import Frozen
from models.parts.rewards.episodes.source_value import SourceValue
from models.parts.rollouts.first_pit import FirstPit, first_pit
from models.parts.select.siblings import Siblings
from tests.support.tiny_engines import Saying
from tests.support.tiny_loops import PROBLEMS, SCHEDULE, Sevens, new_learner, run, same_weights, save_start
from tests.support.tiny_resources import CODEC, make_resources

Say = Callable[[list[str], int], str]
PROMPT = "3 + 4 ="
PROBLEM = Problem("p", PROMPT, "7", tokens=tuple(CODEC.prompts([PROMPT])[0]))
START = len(CODEC.text([PROBLEM.tokens])[0].split())


def pits(say: Say, problem: Problem = PROBLEM, **settings: Any) -> list[Rollout]:
    given = {"prompts": 1, "group_size": 2, "max_tokens": 24, "continuations": 4, "alternatives": 8, **settings}
    return FirstPit(**given)(make_resources(Saying(CODEC, say)), [problem], 0)


def wrong_at_five(words: list[str], seed: int) -> str:
    """Return a continuation: 1 or 2, which has no effect, then 5 or 6. The answer is right only after a 6."""
    said = words[START:]
    first = "" if said else ("1 ; ", "2 ; ")[seed % 2]
    if "5" in said or "6" in said:
        return "#### 7" if "6" in said else "#### 3"
    right = seed % 3 == 0
    return f"{first}{6 if right else 5} ; #### {7 if right else 3}"


@pytest.mark.parametrize(
    ("worth", "pit"),
    [
        ([0.5, 0.5, 0.75, 0.125, 0.0], 2),  # the greatest loss is 0.625, although the least worth is 0
        ([0.5, 0.25, 0.25, 0.0], 0),  # of two steps that lose a quarter, the first
        ([0.0, 0.0, 0.0], 0),
        ([0.25, 0.5, 1.0, 0.0], 2),
        ([1.0, 1.0], 0),
    ],
)
def test_the_first_pit_is_the_step_that_takes_most_off_by_hand(worth: list[float], pit: int) -> None:
    assert first_pit(torch.tensor(worth)) == pit


def test_a_wrong_answer_is_blamed_on_its_bad_step_behind_the_good_ones() -> None:
    made = pits(wrong_at_five, group_size=8)
    assert {rollout.group for rollout in made} == {0, 1}  # after 1 and after 2
    for group in (0, 1):
        bad, good = [rollout for rollout in made if rollout.group == group]
        assert (bad.text, good.text) == ("5 ;", "6 ;") and (bad.source.value, good.source.value) == (0.0, 1.0)
        for step in (bad, good):
            begun = CODEC.text([step.problem.tokens])[0].split()
            assert begun[:START] == PROMPT.split() and begun[START:] in (["1", ";"], ["2", ";"])
            assert step.episode.history == 2 and step.finished and step.behaviour_log_probs is None


def test_siblings_pair_the_better_step_with_the_pit() -> None:
    made = pits(wrong_at_five, group_size=8)
    values = SourceValue()(make_resources(), made)
    chosen = Siblings(margin=0.25)(Scored(made, values, {}, {}))
    assert [made[index].text for index in chosen.tolist()] == ["6 ;", "5 ;"] * 2


def test_equal_steps_count_once_and_a_pit_without_another_step_makes_no_pair() -> None:
    made = pits(lambda words, seed: "5 ; #### 3" if len(words) == START else "#### 3", group_size=4)
    assert [(rollout.text, rollout.source.value) for rollout in made] == [("5 ;", 0.0)]
    assert len(Siblings()(Scored(made, SourceValue()(make_resources(), made), {}, {}))) == 0


def test_right_answers_have_no_pits() -> None:
    assert pits(lambda words, seed: "#### 7") == []


def test_the_last_step_of_an_answer_is_worth_its_verdict() -> None:
    def say(words: list[str], seed: int) -> str:
        first = "" if ";" in words else "6 ; "
        return first + ("#### 7" if seed % 2 else "#### 3")

    made = pits(say, group_size=8, continuations=64)
    assert {(rollout.text, rollout.source.value) for rollout in made} == {("#### 3", 0.0), ("#### 7", 1.0)}
    assert {rollout.episode.history for rollout in made} == {2}


def test_pits_are_not_judged_by_the_continuations_that_they_were_chosen_by() -> None:
    """Every step is worth a half. The least of ten estimates is far below that; a new estimate of its step is not."""

    def say(words: list[str], seed: int) -> str:
        said = words[START:].count(";")
        return "1 ; " * (9 - said) + ("#### 7" if seed % 2 else "#### 3")

    others = [CODEC.prompts([f"{PROMPT} {first} {second}"])[0] for first in range(10) for second in range(10)]
    problems = [replace(PROBLEM, tokens=tuple(ids)) for ids in others]
    source = FirstPit(group_size=1, max_tokens=40, continuations=4, alternatives=1)
    made = source(make_resources(Saying(CODEC, say)), problems, 0)
    worth = [rollout.source.value for rollout in made if rollout.text == "1 ;" and rollout.source.value is not None]
    assert len(worth) >= 20 and 0.35 < sum(worth) / len(worth) < 0.65


def test_a_round_has_the_same_steps_again_and_the_next_one_others() -> None:
    def steps(number: int) -> list[tuple[str, float | None]]:
        source = FirstPit(group_size=8, max_tokens=24, continuations=4, alternatives=2)
        made = source(make_resources(Saying(CODEC, wrong_at_five)), [PROBLEM, replace(PROBLEM, id="q")], number)
        return [(rollout.text, rollout.source.value) for rollout in made]

    assert steps(0) == steps(0)
    assert len({str(steps(number)) for number in range(6)}) > 1


@pytest.mark.parametrize("text", ["", ";", "; ; ;", "#### ####", "= " * 500, "\x00\udcff", "ä" * 50])
@pytest.mark.parametrize("answer", ["7", ""])
def test_whatever_is_said_has_a_value(text: str, answer: str) -> None:
    made = pits(lambda words, seed: text.encode("utf-8", "replace").decode(), replace(PROBLEM, answer=answer))
    assert made and all(rollout.source.value == 0.0 and rollout.completion for rollout in made)


def test_a_real_policy_stays_within_its_tokens_and_a_group_behind_one_prefix(tmp_path: Path) -> None:
    engine = TransformersEngine(save_start(tmp_path), EngineSettings(precision="float32"), end=CODEC.ends)
    source = FirstPit(prompts=4, group_size=4, max_tokens=8, continuations=2, marks=("+", "=", "7"))
    made = source(make_resources(engine), PROBLEMS[:4], 0)
    counts = [sum(rollout.group == group for rollout in made) for group in range(made[-1].group + 1)]
    assert 2 <= max(counts) <= source.largest_group()
    for rollout in made:
        assert rollout.episode.history + len(rollout.completion) <= 8
        assert len({other.completion for other in made if other.group == rollout.group}) == counts[rollout.group]
        assert len({other.problem.tokens for other in made if other.group == rollout.group}) == 1


@pytest.mark.thorough
def test_a_run_that_was_killed_ends_with_the_same_weights(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, rounds=4, epochs=1, minibatches=1)
    source = FirstPit(prompts=4, group_size=4, max_tokens=8, continuations=4, marks=("+", "=", "7"))
    # The start is not trained and gives no right answer, so its answers have pits.
    slots = Slots(source, [Sevens()], [Siblings()], NoAdvantage(), Dpo(), Frozen())
    start = save_start(tmp_path / "policy")
    whole, _ = run(start, tmp_path / "whole", slots=slots, schedule=schedule)
    run(start, tmp_path / "killed", slots=slots, schedule=schedule, killed_in=3)
    resumed, diary = run(start, tmp_path / "killed", slots=slots, schedule=schedule)
    assert diary.resumed == [2] and same_weights(whole, resumed)
    assert not same_weights(whole, new_learner(schedule))
