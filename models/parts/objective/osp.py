"""Online self-preferring: all pairs of a group, each with the strength of its preference (paper 346, "OSP").

    loss = mean over all pairs of the group of  -p log sigmoid(m) - (1 - p) log sigmoid(-m)
    p = sigmoid((v_i - v_j) / temperature),   m = s_i - s_j,   s = beta log pi/ref

v is the reward of a completion, read as log-odds. All pairs have zero gradient at once where s = v / temperature but
for a constant: at the optimum of reward less beta * temperature times the KL to the reference, for completions of any
sampler. A pair of equal rewards is not left out: it asks for the same s of both.

Derived from the paper's abstract and its summary. There the model judges strengths itself and pairs are made by rank;
here the recipe's rewards judge, and every pair counts.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions
from models.parts.shared.soft_label import soft_loss
from models.parts.shared.within_groups import mean_over_pairs, pairs_within


@part("osp")
class Osp(Objective):
    """Cross-entropy per group, over all its pairs, against the strength of each preference; needs a reference."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""
    temperature: PositiveFloat = 1.0
    """Divisor of reward differences before they count as log-odds."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups], nats; zero for a group of one completion.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: the reference's log-probs, [tokens], the rewards, [completions], and the groups.
        """
        pairs = pairs_within(batch.group)
        implied = implied_of_completions(log_prob, batch, self.beta)[pairs]
        worth = batch.reward[pairs]
        margin, gap = implied[:, 0] - implied[:, 1], (worth[:, 0] - worth[:, 1]) / self.temperature
        watch = {
            "ordered_share": mean_over_pairs((margin * gap > 0).to(margin), pairs, batch.group),
            "strength": mean_over_pairs(torch.sigmoid(gap.abs()), pairs, batch.group),
        }
        loss = mean_over_pairs(soft_loss(margin, torch.sigmoid(gap)), pairs, batch.group)
        return loss, {name: value.detach() for name, value in watch.items()}
