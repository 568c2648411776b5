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
    """Base class of parts that can decide whether an answer is right, and traits about how they decide."""

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
        """Whether `right` also decides in evaluations and at the gate, instead of the problems' expected answers."""
        return False

    @property
    def by_wording(self) -> bool:
        """Whether an answer in words must match the expected words, so that no sentence can be expected."""
        return False

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return which attempts solve their problems, [attempts], bool; used if it `verifies`."""
        return []

    @property
    def grades(self) -> bool:
        """Whether a reward that `verifies` also gives partial credit, by `grade`."""
        return False

    def grade(self, attempts: Sequence[Attempt]) -> list[float]:
        """Return the share of the requirements that each attempt meets, [attempts], in [0, 1], if it `grades`."""
        return []

    def stated(self, problem: Problem) -> str | None:
        """Return a completion that states the problem's expected answer, which `right` must accept.

        None: no such completion can be made from the problem alone.
        """
        return None

    def accepts(self, problems: Sequence[Problem]) -> list[bool]:
        """Return which problems' expected answers are accepted, [problems], or cannot be stated by `stated`."""
        statements = [self.stated(problem) for problem in problems]
        attempts = [
            Attempt(each, text, True) for each, text in zip(problems, statements, strict=True) if text is not None
        ]
        verdicts = iter(self.right(attempts) if attempts else ())
        return [text is None or next(verdicts) for text in statements]
