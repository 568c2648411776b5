"""What is said of an answer in words, and where in it: the part of a recipe that gives feedback.

Words are read by a policy that is to do better (rollouts refined); spans are what the words are about, as signs of the
characters of the answer (rewards span_feedback). Feedback that names no place has no spans.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.loop.attempt import Attempt
from models.parts import Part


@dataclass(frozen=True)
class Span:
    """Characters of an answer that are praised or blamed."""

    start: int
    stop: int
    """Behind the last of them."""
    sign: Literal[-1, 1]
    """1: well done; -1: a fault."""


@dataclass(frozen=True)
class Remark:
    """What is said of one answer."""

    text: str
    spans: tuple[Span, ...] = ()
    """None of them overlap."""


class Feedback(Part):
    """Who says what of an answer. Stands under `rollouts.feedback:` and `rewards.feedback:`."""

    slot = "feedback"

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the problems' answers."""
        return False

    @abstractmethod
    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """What is said of each attempt, whatever text it is, [attempts]."""
