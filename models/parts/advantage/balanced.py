"""Right and wrong completions normalised separately over the round: OREAL (arXiv 2502.06781; paper 280).

    a_i = v_i - mean of v_j over j != i              v is the verdict of completion i, 1 right or 0 wrong
    A_i = a_i * tokens / tokens of the right ones                 where i is right
    A_i = a_i * negatives * tokens / tokens of the wrong ones     where i is wrong

With schedule.normalisation: token and one step a round the loss -A log pi is then the published one,

    sum over right of -a log pi / N+   +   negatives * sum over wrong of -a log pi / N-

so neither side dominates the other, however rare it is in the round; the published run halves the wrong side. N+ and N-
count the tokens that are trained on, including groups without signal, whose a is zero. With several steps a round the
tokens are still those of the whole round. The paper's model of single tokens' weights is not included: all tokens of a
completion have the same weight.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Number
from models.method.advantage import CompletionAdvantage
from models.method.registry import part
from models.method.resources import RunResources
from models.method.scored import Scored
from models.parts.advantage.leave_one_out import LeaveOneOut


@part("balanced")
class Balanced(CompletionAdvantage):
    """Leave-one-out of a verdict, right and wrong normalised separately; zero if a prompt's verdicts are equal."""

    needs_group = True
    by: str = "total"
    """Reward component that is the verdict; `total` is the weighted sum."""
    threshold: Number = 0.5
    """Threshold of the verdict above which a completion is right."""
    negatives: NonNegativeFloat = 0.5
    """Weight of the wrong completions relative to the right ones; 0 clones the right ones alone."""

    def of_completions(self, resources: RunResources, scored: Scored) -> Tensor:
        """Compute advantages, [completions].

        Raises:
            UserError: no reward is called `by`.
        """
        right = (scored.component(self.by, "advantage.by") > self.threshold).to(scored.rewards)
        tokens = torch.tensor([rollout.trained_tokens for rollout in scored.rollouts]).to(right)
        of_the_right = (tokens * right).sum()
        of_the_wrong = tokens.sum() - of_the_right
        weight = torch.where(
            right > 0,
            tokens.sum() / of_the_right.clamp(min=1.0),
            self.negatives * tokens.sum() / of_the_wrong.clamp(min=1.0),
        )
        return weight * LeaveOneOut().of_completions(resources, replace(scored, rewards=right))
