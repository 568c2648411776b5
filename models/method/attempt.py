"""Answers to problems, and the interface of the parts that decide whether they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from models.method.problem import Problem
from models.method.rollout import Rollout
from models.method.slot_part import SlotPart

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


class Verifying(SlotPart):
    """Methods by which a reward decides right and wrong."""

    @property
    def needs_answers(self) -> bool:
        """Whether it compares completions with the problems' answers."""
        return False

    @property
    def needs_tests(self) -> bool:
        """Whether it runs the problems' tests."""
        return False

    @property
    def verifies(self) -> bool:
        """Whether `right` decides in evaluations and at the gate too, instead of the problems' answers."""
        return False

    @property
    def by_wording(self) -> bool:
        """Whether an answer of words is right only in the expected words: then no whole sentence can be expected."""
        return False

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return which attempts solve their problems, [attempts], of a reward that `verifies`."""
        return []

    @property
    def grades(self) -> bool:
        """Whether a reward that `verifies` also measures in part, by `grade`."""
        return False

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the share of the requirements that each attempt meets, [attempts], in [0, 1], if it `grades`."""
        return []

    def stated(self, problem: Problem) -> str | None:
        """Return a completion that states the problem's own answer, which `right` must accept; None: none can be made
        from the problem alone."""
        return None

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return which problems' own answers are accepted, [problems]; also where no completion can be made of one."""
        stated = [self.stated(problem) for problem in problems]
        asked = [Attempt(each, text, True) for each, text in zip(problems, stated, strict=True) if text is not None]
        verdicts = iter(self.right(asked) if asked else ())
        return [text is None or next(verdicts) for text in stated]
