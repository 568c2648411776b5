"""An answer to a problem, as whoever decides whether it is right sees it: in the loop as in evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from models.loop.rollout import Problem, Rollout

AGAIN = "{prompt}\nA previous solution and what is to be said of it: {told}\nSolve it anew, without its faults."
"""What a policy reads that is to make an attempt better, where a recipe says nothing else: `{prompt}` and `{told}`, the
attempt with what is said of it, have their places in it."""


class Attempt(NamedTuple):
    """What was answered to a problem."""

    problem: Problem
    text: str
    finished: bool
    """Whether it ended by itself and was not cut."""

    @classmethod
    def of(cls, rollout: Rollout) -> Attempt:
        """What a rollout answers."""
        return cls(rollout.problem, rollout.text, rollout.finished)


Verify = Callable[[Sequence[Attempt]], list[bool]]
"""Which attempts are right, [attempts]."""
Grade = Callable[[Sequence[Attempt]], list[float]]
"""Share of what was demanded that each attempt meets, [attempts], in [0, 1]."""
