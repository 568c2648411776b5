"""Feedback on an answer in words, with the spans that it is about: the part of a recipe that gives feedback.

The words are read by a policy that improves an answer (rollouts refined). The spans mark what the words are about, as
signs of the characters of the answer (rewards span_feedback). Feedback that names no place has no spans.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.method.attempt import Attempt
from models.method.registry import Part


@dataclass(frozen=True)
class RemarkSpan:
    """Characters of an answer that are praised or criticised."""

    start: int
    stop: int
    """End of the span, exclusive."""
    sign: Literal[-1, 1]
    """1: well done; -1: a fault."""


@dataclass(frozen=True)
class Remark:
    """The feedback on one answer."""

    text: str
    spans: tuple[RemarkSpan, ...] = ()
    """Spans of the answer; they do not overlap."""


class Feedback(Part):
    """The source of the feedback on answers. Set under `rollouts.feedback:` and `rewards.feedback:`."""

    slot = "feedback"

    @property
    def needs_answers(self) -> bool:
        """Whether it reads the problems' answers."""
        return False

    @abstractmethod
    def __call__(self, attempts: Sequence[Attempt]) -> list[Remark]:
        """Return the feedback on each attempt, whatever text it is, [attempts]."""
