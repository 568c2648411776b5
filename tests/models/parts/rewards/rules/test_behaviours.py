"""Behaviours are counted by line, by rules, in the policy's own turns alone."""

from dataclasses import replace
from typing import Any

import pytest

from models.method.episode import Turn
from models.method.problem import Problem
from models.method.rollout import Rollout, RolloutEpisode
from models.parts.rewards.rules.behaviours import Behaviours, behaviours_in

TEXT = "goal 64-8=56\nfirst 3+5=8\n3*8+5=29 no\n(3+5)*8"
NONE: Any = None


def rollout(text: str) -> Rollout:
    return Rollout(Problem("p", "3 5 8 -> 64"), 0, (1, 2), None, text, finished=True)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (TEXT, (1, 1, 1, 1)),
        ("(3+5)*8", (0, 0, 0, 0)),
        ("", (0, 0, 0, 0)),
        ("3*8+5 = 29, not 64\n8*5-3 = 37. Wrong\nwait, check it", (3, 3, 0, 0)),
        ("First, 3+5=8\nThen 8*8\nnotes and a firstborn", (0, 0, 2, 0)),
        ("we NEED 8 and 8", (0, 0, 0, 1)),
        ("3+5=8 nothing", (0, 0, 0, 0)),
    ],
)
def test_lines_are_counted_once_for_each_behaviour(text: str, counts: tuple[int, ...]) -> None:
    counted = behaviours_in(text)
    assert tuple(counted.values()) == counts
    one_by_one = [Behaviours(of=name)(NONE, [rollout(text)]).item() for name in counted]
    assert one_by_one == list(map(float, counts))
    assert Behaviours()(NONE, [rollout(text), rollout(TEXT)]).tolist() == [float(sum(counts)), 4.0]


def test_text_of_an_environment_is_not_counted() -> None:
    turns = (Turn(0, 1, text="3*8+5=29 no"), Turn(1, 2, text="(3+5)*8", response="no, first think"))
    played = replace(rollout("all of it: first, first"), episode=RolloutEpisode(turns=turns))
    assert behaviours_in("no, first think")["backtracking"] == 1
    assert Behaviours()(NONE, [played]).tolist() == [2.0]
