"""An answer to a problem, as the check for right answers receives it: in the loop as in evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from models.method.rollout import Problem, Rollout

AGAIN = "{prompt}\nA previous solution and comments on it: {shown}\nSolve the problem again, without its errors."
"""Default prompt for improving an attempt, with places for the problem's prompt and the attempt with its feedback."""


class Attempt(NamedTuple):
    """An answer to a problem."""

    problem: Problem
    text: str
    finished: bool
    """Whether it ended by itself and was not cut."""

    @classmethod
    def of(cls, rollout: Rollout) -> Attempt:
        """Build the attempt of a rollout."""
        return cls(rollout.problem, rollout.text, rollout.finished)


Verify = Callable[[Sequence[Attempt]], list[bool]]
"""Function that returns which attempts are right, [attempts]."""
Grade = Callable[[Sequence[Attempt]], list[float]]
"""Function that returns the share of the requirements that each attempt meets, [attempts], in [0, 1]."""
