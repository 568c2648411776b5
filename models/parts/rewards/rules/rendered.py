"""Rule-based reward: likeness of the picture that a completion draws to that which the answer draws (RLRF, paper 19).

    value = max(-1, 1 - mean (a - b)^2) - length * excess       a, b: the pixels, each picture with mean 0, deviation 1
    excess = (max(0, L - L* / 2) / L*)^2, at most 1             L, L*: length of the completion and of the answer

Completion and answer are drawings in a subset of SVG (`models.answers.vector_graphics`), which are drawn in the size of
the prompt's first picture. What that picture shows is not read, so the blind control can show another one to the policy
alone. A completion that cannot be drawn is worth -1. Supervised learning compares texts, and a text that is almost
right can draw something else; this reward compares what is drawn. The first term is 1 for equal pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat
from torch import Tensor

from models.answers.marked_answers import without_reasoning
from models.answers.vector_graphics import UnreadableDrawingError, rendered
from models.base.bounds import Share
from models.base.errors import UserError
from models.base.images import content_of
from models.base.pictures import size_of
from models.method.attempt import Attempt
from models.method.problem import Problem, first_picture
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout

Pixels = NDArray[np.float64]
"""Colours of a picture with mean 0 and deviation 1, [height, width, 3]."""


@part("rendered")
class Rendered(Reward):
    """Likeness of the drawn picture to that of the answer, from -1 to 1."""

    needs_answers = True
    verifies = True
    length: NonNegativeFloat = 0.0
    """Weight of the cost of a long drawing."""
    right_from: Share = 0.8
    """Smallest likeness of a right drawing."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the likeness of each completion's picture less the cost of its length, [completions]."""
        attempts = [Attempt.of(rollout) for rollout in rollouts]
        return torch.tensor([_likeness(attempt) - self.length * _excess(attempt) for attempt in attempts])

    def stated(self, problem: Problem) -> str:
        """Return the drawing of the answer."""
        return problem.answer

    def right(self, attempts: Sequence[Attempt]) -> list[bool]:
        """Return whether each attempt ended with a picture that is like enough, [attempts]."""
        return [_likeness(attempt) >= self.right_from for attempt in attempts]


def _likeness(attempt: Attempt) -> float:
    if not attempt.finished:
        return -1.0
    name = first_picture(attempt.problem, "reward rendered")
    size = size_of(content_of(name), f"image {name}")
    try:
        expected = _expected(attempt.problem.answer, size)
    except UnreadableDrawingError as error:
        raise UserError(f"problem {attempt.problem.id}: the answer cannot be drawn: {error}") from None
    try:
        drawn = rendered(without_reasoning(attempt.text), size)
    except UnreadableDrawingError:
        return -1.0
    return max(-1.0, 1.0 - float(np.mean((_normalised(np.asarray(drawn, float)) - expected) ** 2)))


def _excess(attempt: Attempt) -> float:
    """Return the square of the length above half of the answer's, as a share of the answer's, at most 1."""
    expected = max(1, len(attempt.problem.answer))
    return min(1.0, max(0.0, len(attempt.text) - expected / 2) / expected) ** 2


@lru_cache(maxsize=4096)
def _expected(answer: str, size: tuple[int, int]) -> Pixels:
    return _normalised(np.asarray(rendered(answer, size), float))


def _normalised(pixels: Pixels) -> Pixels:
    """Return pixels with mean 0 and deviation 1; a picture of one colour is all zeros."""
    centred = pixels - pixels.mean()
    spread = float(centred.std())
    normalised: Pixels = centred / spread if spread > 0 else centred
    return normalised
