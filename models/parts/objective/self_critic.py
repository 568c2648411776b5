"""A policy gradient alternating with preferences among own episodes (Tool-Star, paper 276, arXiv 2505.16410).

    policy gradient   mean over the group's tokens of -min(rho A, clip(rho) A)
    self-critic       -log sigmoid(beta * (log pi/ref of the best - log pi/ref of the worst of the group))    (DPO)

The run is cut into `cycles` of equal length; in the first half of each the policy gradient is followed, in the second
the preferences, which the same reward decides. A group in which all rewards are equal has no preference.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.base.bounds import Positive, Share
from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.clipped_ratio import clip


@part("self_critic")
class SelfCritic(Objective):
    """Policy gradient in one half of each cycle, DPO within the group in the other half; needs a reference."""

    level = "group"
    reads_tokens = True
    needs_reference = True
    cycles: Positive = 2
    """Number of cycles in a run; each has one phase of either kind."""
    beta: PositiveFloat = 0.1
    """Temperature of the preferences."""
    clip_range: Share = 0.2
    """Distance by which the ratio may leave one in the policy gradient."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups]; `log_prob` is [tokens]."""
        critic = self._critic(batch.progress)
        loss = self._preferences(log_prob, batch) if critic else self._gradient(log_prob, batch)
        return loss, {"self_critic": torch.full_like(loss.detach(), float(critic))}

    def _critic(self, progress: float) -> bool:
        """Return whether it is the turn of the preferences."""
        return int(progress * self.cycles * 2) % 2 == 1

    def _gradient(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        ratio = torch.exp(log_prob - batch.old)
        bounded = clip(ratio, self.clip_range, self.clip_range)
        surrogate = torch.minimum(ratio * batch.advantage, bounded * batch.advantage)
        sums = batch.sum_by_group(batch.sum_by_completion(surrogate))
        return -sums / batch.sum_by_group(batch.lengths.to(sums))

    def _preferences(self, log_prob: Tensor, batch: TokenBatch) -> Tensor:
        assert batch.reference is not None, "the objective needs a reference"
        scores = self.beta * batch.sum_by_completion(log_prob - batch.reference)
        losses = []
        for group in range(int(batch.group.max()) + 1):
            members = (batch.group == group).nonzero().squeeze(-1)
            rewards = batch.reward[members]
            best, worst = members[rewards.argmax()], members[rewards.argmin()]
            margin = scores[best] - scores[worst]
            differs = (batch.reward[best] > batch.reward[worst]).to(margin)
            losses.append(-functional.logsigmoid(margin) * differs)
        return torch.stack(losses)
