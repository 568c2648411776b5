"""The score of the fitted reward model, squashed to (0, 1) so that no outlier rules a group.

A Bradley-Terry score is a log-odds: its sigmoid is the chance to win against a completion of score zero.

A reward model was fitted to answers that end, and says nothing of one that was cut: such a completion is worth no more
than the worst of its round. A fixed penalty would have to know the scale of the scores.

A reward model that goes by principles (SALMON, paper 90; `models.reward_model.principles`) scores by the one that is
named: which can be another in every training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.loop.rollout import Rollout, said_sequences
from models.loop.slots import Reward
from models.loop.truncation import worst_where_cut
from models.loop.world import World
from models.parts import part
from models.reward_model.principles import PrincipledScorer


def learned_scores(world: World, rollouts: Sequence[Rollout], principle: str = "") -> Tensor:
    """Scores by the reward model of this run, [completions]; of those that were cut the least of all `rollouts`. Of an
    episode it reads what the policy said: an answer that a tool gives away must not raise the score.

    Args:
        world: holds the reward model.
        rollouts: what is scored.
        principle: what a reward model under principles goes by; empty: its first.
    """
    scorer = world.score_with_reward_model
    assert scorer is not None, "the recipe check makes sure that a reward model is there"
    sequences = said_sequences(rollouts)
    if principle:
        assert isinstance(scorer, PrincipledScorer), "the recipe check makes sure that it has the principle"
        return worst_where_cut(scorer.under(principle, sequences), rollouts)
    return worst_where_cut(scorer(sequences), rollouts)


@part("reward_model")
class LearnedReward(Reward):
    """The reward model of this run."""

    needs_reward_model = True
    squash: Literal["none", "sigmoid"] = "sigmoid"
    """How the raw score is bounded."""
    principle: str = ""
    """Which of `reward_model.principles` it goes by; empty: the first, or none where there is none."""

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> Tensor:
        """Score of prompt and completion together, [completions]."""
        scores = learned_scores(world, rollouts, self.principle)
        return torch.sigmoid(scores) if self.squash == "sigmoid" else scores
