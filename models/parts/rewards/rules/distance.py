"""Rule-based reward: how near a stated point is to the expected one (VLMLocPredictor, paper 192).

    value = max(0, 1 - |p - q| / reach)        p: the point of the completion, q: that of the answer

A completion is a point if it has as many numbers as the answer, such as `17 9`. One that cannot be read is worth 0.
Cross-entropy takes a coordinate that is off by one for as wrong as any other; this reward does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.answers.answers import expected_answer, extract_answer
from models.answers.boxes import numbers_in
from models.answers.exact import marked
from models.answers.marked_answers import without_reasoning
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Length = Annotated[float, Field(gt=0.0, le=1e9)]
LARGEST_DIMENSION = 16
"""Maximum number of coordinates of a point."""


@part("distance")
class Distance(Reward):
    """Nearness of a completion's point to the expected one."""

    needs_answers = True
    verifies = True
    reads: Literal["answer", "whole"] = "whole"
    """Text that the point is read from: the answer that a completion states, or the whole completion."""
    reach: Length = 8.0
    """Distance from which a point is worth nothing."""
    right_within: Length = 1.5
    """Largest distance of a right point."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the nearness of each completion's point, [completions], from 0 to 1."""
        distances = [self._distance(Attempt.of(rollout)) for rollout in rollouts]
        return torch.tensor([max(0.0, 1.0 - distance / self.reach) for distance in distances])

    def stated(self, problem: Problem) -> str:
        """Return the point in the form in which a completion states it."""
        return marked(problem.answer) if self.reads == "answer" else expected_answer(problem.answer)

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended with a point within `right_within`, [attempts]."""
        return [self._distance(attempt) <= self.right_within for attempt in attempts]

    def _distance(self, attempt: Attempt) -> float:
        """Return the distance between the points; infinite if either cannot be read."""
        text = extract_answer(attempt.text) if self.reads == "answer" else without_reasoning(attempt.text)
        point = _point(text) if text is not None and attempt.finished else None
        expected = _point(expected_answer(attempt.problem.answer))
        if point is None or expected is None or len(point) != len(expected):
            return math.inf
        return math.dist(point, expected)


def _point(text: str) -> list[float] | None:
    numbers = numbers_in(text)
    return numbers if 0 < len(numbers) <= LARGEST_DIMENSION else None
