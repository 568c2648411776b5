"""Similarity of a completion's state to the goal state of preferred ones, at any token (paper 203, arXiv 2407.13887).

    value = cos(h_t, goal)          t: the last token of the first `share` of what the policy wrote

The states are those of the run's reward model, which must be trained contrastively (`reward_model.fit.contrast.goal`).
With a `share` below 1 the reward estimates from a prefix where the completion leads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, written_sequences
from models.method.truncation import worst_where_cut
from models.reward_models.scorer import GoalScorer

FARTHEST = -1.0
"""Value of a completion without a token."""


@part("goal_nearness")
class GoalNearness(Reward):
    """Cosine similarity of a completion's state to the goal of the reward model."""

    needs_reward_model = True
    needs_goal = True
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the completion that is read; with 1 all of it is, and a completion that was cut gets the least value of
    the round."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-1, 1], [completions].

        Raises:
            UserError: the reward model of the run has no goal.
        """
        scorer = resources.score_with_reward_model
        if not isinstance(scorer, GoalScorer):
            raise UserError(f"reward {self.label} needs a goal: fit one with reward_model.fit.contrast.goal above 0")
        some = [place for place, rollout in enumerate(rollouts) if rollout.written_ids]
        values = torch.full((len(rollouts),), FARTHEST)
        if some:
            rows = scorer.nearness(written_sequences([rollouts[place] for place in some]))
            values[some] = torch.stack([row[math.ceil(self.share * len(row)) - 1] for row in rows])
        return worst_where_cut(values, rollouts) if self.share == 1 else values
