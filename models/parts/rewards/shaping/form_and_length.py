"""Reward of a completion's form and length, without a reference answer (paper 10, arXiv 2505.19439).

    with the form       form + weight * f(x)          x = tokens / longest, at most 1
    without             min(0, weight * f(x))

    f(x) = 1 - (1 - x / p)^2                    for x <= p: rises to 1
         = 1 - 2 ((x - p) / (1 - p))^2          beyond: falls to -1 at the limit

A completion has the form if it ended and states an answer that is a number. The paper adds the length term after the
early rounds, which train the form alone: `length_after`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from models.answers.answers import answer_kind, extract_answer
from models.base.bounds import Positive
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout


@part("form_and_length")
class FormAndLength(Reward):
    """Reward for the form of an answer, and for a length that is neither short nor long."""

    form: NonNegativeFloat = 0.5
    """Reward of the form."""
    length: NonNegativeFloat = 1.0
    """Reward of the best length; 0: the form alone."""
    best: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of `longest` at which the length reward is largest (p)."""
    longest: Positive = 3072
    """Tokens at which the length term reaches minus the reward of the best length."""
    length_after: NonNegativeInt = 0
    """Number of the policy's first optimiser steps without the length term."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-length, form + length], [completions]."""
        weight = self.length if resources.learner.updates >= self.length_after else 0.0
        return torch.tensor([self._value(rollout, weight) for rollout in rollouts])

    def _value(self, rollout: Rollout, weight: float) -> float:
        worth = weight * length_score(rollout.written_tokens / self.longest, self.best)
        return self.form + worth if has_form(rollout) else min(0.0, worth)


def has_form(rollout: Rollout) -> bool:
    """Return whether a completion ended and states an answer that is a number."""
    answer = extract_answer(rollout.text) if rollout.finished else None
    return answer is not None and answer_kind(answer).endswith("number")


def length_score(x: float, best: float) -> float:
    """Return f of the module's docstring: 0 at x = 0, 1 at x = `best`, -1 at x = 1 and beyond."""
    if x <= best:
        return 1 - (1 - x / best) ** 2
    return 1 - 2 * ((min(x, 1.0) - best) / (1 - best)) ** 2
