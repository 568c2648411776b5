"""The task set `theorems`: a verdict is the one that the numbers give, and half of the variants are proved."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules.choice import Choice
from models.task_sets.theorems import VARIANTS, VERDICTS, TheoremsSettings, variant
from tests.support.malformed_texts import malformed, rollout

SETTINGS = TheoremsSettings(problems={"train": 1}, largest=12, agreed=0.4, misjudged=0.4)
REWARD = Choice(labels=VERDICTS)


@pytest.mark.parametrize("which", range(len(VARIANTS)))
def test_a_variant_is_proved_exactly_where_it_holds_of_every_number(which: int) -> None:
    said: list[Callable[[int], bool]] = [
        lambda value: value % 2 == 0, lambda value: value % 2 == 1,
        lambda value: value in range(-400, 400, 2), lambda value: value not in range(-400, 400, 2),
    ]  # fmt: skip
    for factor in (2, 4, 10):
        for number in range(1, 9):
            task = variant(factor, number, which)
            holds = all(said[which](factor * n + number) for n in range(-20, 20))
            assert task.answer == ("proved" if holds else "disproved")
            assert task.prompt == f"for all n , {factor} n + {number} {VARIANTS[which]}" and task.level == which + 1


def test_who_agrees_with_every_variant_of_a_theorem_is_right_at_half() -> None:
    for number in (5, 6):
        verdicts = [variant(4, number, which).answer for which in range(len(VARIANTS))]
        assert verdicts.count("proved") == verdicts.count("disproved") == 2


def test_sound_demonstrations_state_the_truth_and_flawed_ones_do_not() -> None:
    random, flaws = Random(3), set()
    for _ in range(300):
        task = SETTINGS.draw(random)
        flaw, (text,) = SETTINGS.demonstrate(random, task)
        [worth] = REWARD(cast(RunResources, None), [rollout(text, Problem("p", task.prompt, task.answer))]).tolist()
        assert worth == (flaw == "none")
        flaws.add(flaw)
    assert flaws == {"none", "agreed", "misjudged"}


def test_whatever_is_written_is_a_verdict_or_none() -> None:
    values = REWARD(cast(RunResources, None), malformed(Problem("p", "", "proved")))
    assert values.tolist() == [0.0] * len(values)
