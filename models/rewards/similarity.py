"""How alike the stated answer and the problem's are, by a metric of translation (paper 220, arXiv 2508.19481).

The metric is BLEU or chrF (`models.formulas.likeness`). Answers of a few letters share runs of letters long before they
are right, so chrf tells apart what bleu calls nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from models.formulas.likeness import Metric, likeness
from models.loop.rollout import Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.parts import part
from models.text.answers import extract_answer


@part("similarity")
class Similarity(Reward):
    """Likeness of the answer and the problem's; zero where none is stated, or the completion did not end."""

    needs_answers = True
    metric: Metric = "chrf"
    """Which."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Values in [0, 1], [completions]."""
        return torch.tensor([self._value(rollout) for rollout in rollouts])

    def _value(self, rollout: Rollout) -> float:
        answer = extract_answer(rollout.text) if rollout.finished else None
        return 0.0 if answer is None else likeness(answer, rollout.problem.answer, self.metric)
