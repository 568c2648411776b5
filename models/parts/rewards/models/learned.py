"""Score of the fitted reward model, squashed to (0, 1) so that no outlier dominates a group.

A Bradley-Terry score is a log-odds: its sigmoid is the probability to win against a completion of score zero.

A reward model is fitted to finished answers, so its score of a cut one is not reliable: a cut completion gets at most
the least value of its round. A fixed penalty would depend on the scale of the scores.

A reward model with principles (SALMON, paper 90; `models.reward_models.principles`) scores by the principle that the
recipe names, which may differ between trainings. One that reads facts (LLaVA-RLHF, paper 188;
`models.reward_models.facts`) gets the answers of the problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout, written_sequences
from models.method.truncation import worst_where_cut
from models.reward_models.facts import FactScorer
from models.reward_models.principles import PrincipledScorer


def learned_scores(resources: RunResources, rollouts: Sequence[Rollout], principle: str = "") -> Tensor:
    """Score completions by the reward model of this run, [completions].

    Completions that were cut get the least score of all `rollouts`.

    For an episode, only the policy's own text is read: an answer that a tool gives away must not raise the score.

    Args:
        resources: holds the reward model.
        rollouts: the completions to score.
        principle: principle of a reward model with principles; empty: its first.
    """
    scorer = resources.score_with_reward_model
    assert scorer is not None, "the recipe check makes sure that a reward model is there"
    sequences = written_sequences(rollouts)
    if principle:
        assert isinstance(scorer, PrincipledScorer), "the recipe check makes sure that it has the principle"
        return worst_where_cut(scorer.under(principle, sequences), rollouts)
    if isinstance(scorer, FactScorer):
        problems = [rollout.problem for rollout in rollouts]
        return worst_where_cut(scorer.with_facts(problems, sequences.completions), rollouts)
    return worst_where_cut(scorer(sequences), rollouts)


@part("reward_model")
class LearnedReward(Reward):
    """The reward model of this run."""

    needs_reward_model = True
    squash: Literal["none", "sigmoid"] = "sigmoid"
    """Function that bounds the raw score."""
    principle: str = ""
    """One of `reward_model.principles`; empty: the first, if there are any."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return the score of prompt and completion together, [completions]."""
        scores = learned_scores(resources, rollouts, self.principle)
        return torch.sigmoid(scores) if self.squash == "sigmoid" else scores
