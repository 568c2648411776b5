"""Reflections on trials of a frozen actor: the reward is the change of the actor's return."""

from typing import Any, cast

import pytest

from models.agents.environments.reflected import Reflected
from models.method.environment import View
from models.method.problem import Problem

PROBLEM = Problem("p", "47 * 83 = ?", "3901")
RIGHT, WRONG, NEVER = ["calculator: 47 * 83", "#### 3901"], ["#### 3900"], ["calculator: 1"] * 3


def play(view: View, turns: list[str]) -> list[Any]:
    return [view.step(turn) for turn in turns]


@pytest.mark.parametrize(
    "first, second, change",
    [
        (WRONG, RIGHT, 1.0),
        (RIGHT, WRONG, -1.0),
        (RIGHT, RIGHT, 0.0),
        (NEVER, RIGHT, 1.0),
        (WRONG, NEVER, 0.0),
    ],
)
def test_a_reflection_earns_the_change_of_the_return(first: list[str], second: list[str], change: float) -> None:
    policy, one_trial, other = Reflected().seats(PROBLEM)
    assert [seat.learns for seat in (policy, one_trial, other)] == [True, False, False]
    assert [seat.speaker for seat in (policy, one_trial, other)] == ["policy", "frozen", "frozen"]
    reflecting, before, after = (cast(View, seat.opened) for seat in (policy, one_trial, other))
    assert [view.reset(3)[1].get("waits", False) for view in (reflecting, before, after)] == [True, False, True]
    assert reflecting.news() is None and after.news() is None
    last = play(before, first)[-1]
    assert last[2] and after.news() is None
    heard = reflecting.news()
    assert heard is not None and all(turn in heard[0] for turn in first) and heard[1:3] == (0.0, False)
    assert reflecting.step("look at the digits") is None
    advice = after.news()
    assert advice is not None and advice[0] == "look at the digits" and reflecting.news() is None
    play(after, second)
    done = reflecting.news()
    assert done is not None and done[1] == change and done[2] and done[4] == {"solved": second is RIGHT}
