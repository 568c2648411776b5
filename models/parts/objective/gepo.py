"""Group equivalent preference optimisation: rank right completions above wrong ones, and tie equally right ones.

Source: paper 256, "On-Policy Optimization with Group Equivalent Preference" (OORL), whose groups are intermediate
representations of one program, equivalent to it or not. Here a group is the completions of a prompt, and equivalent are
those whose reward equals the best of the group.

    loss = mean over (i, j) of l(s_i - s_j)  +  tie * mean over (i, k) of [l(s_i - s_k) + l(s_k - s_i)] / 2 - log 2

with i and k equivalent, j not, l(m) = -log sigmoid(m), s = beta log pi/ref. The second term is the cross-entropy of a
preference that is even, less its smallest value: it is zero where all equivalents have the same s, that is where the
policy divides its mass among them as the reference does, so that no way to be right displaces the others.

Derived from the paper's abstract and its summary; the paper's own form of the two terms may differ. Its other half, a
policy gradient on unit tests, is available as `grpo` with a verifier.
"""

from __future__ import annotations

import math

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions
from models.parts.shared.soft_label import soft_loss
from models.parts.shared.within_groups import mean_over_pairs, pairs_within, same_group


@part("gepo")
class Gepo(Objective):
    """One loss per group over all pairs of its completions; needs a reference."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""
    tie: NonNegativeFloat = 1.0
    """Weight of the term that keeps equivalent completions together."""
    by: str = "total"
    """Reward component that decides which completions are equivalent; `total` is the weighted sum."""
    tolerance: NonNegativeFloat = 1e-4
    """Largest difference from the best of the group that still counts as equivalent."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups], nats, >= 0.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: the reference's log-probs, [tokens], the rewards, [completions], and the groups.

        Raises:
            UserError: no reward has the name `by`.
        """
        implied, right = implied_of_completions(log_prob, batch, self.beta), self._equivalent(batch).to(log_prob)
        pairs = pairs_within(batch.group)
        both = right[pairs].sum(-1)
        apart, tied = pairs[both == 1], pairs[both == 2]
        gap = implied[apart] * (2.0 * right[apart] - 1.0)  # the right one's less the wrong one's, whichever is first
        preference = mean_over_pairs(soft_loss(gap.sum(-1), 1.0), apart, batch.group)
        even = soft_loss(implied[tied[:, 0]] - implied[tied[:, 1]], 0.5) - math.log(2.0)
        tie = mean_over_pairs(even, tied, batch.group)
        watch = {
            "equivalent_share": batch.mean_by_group(right),
            "pair_accuracy": mean_over_pairs((gap.sum(-1) > 0).to(gap), apart, batch.group),
            "preference_loss": preference,
            "tie_loss": tie,
        }
        return preference + self.tie * tie, {name: value.detach() for name, value in watch.items()}

    def _equivalent(self, batch: TokenBatch) -> Tensor:
        """Return whether a completion is worth as much as the best of its group, [completions], bool."""
        worth = batch.worth(self.by)
        best = torch.where(same_group(batch.group), worth[None, :], -torch.inf).amax(-1)
        return worth >= best - self.tolerance
