"""Tree preference optimisation: learn the whole ranked list of a prompt's completions (paper 354, arXiv 2410.12854).

    loss = sum over i, j with v_i > v_j of  w_ij * -log sigmoid(s_i - s_j),   s = beta log pi/ref
    w_ij = |2^v_i - 2^v_j| * |1 / log2(1 + rank_i) - 1 / log2(1 + rank_j)|

v is the reward of a completion and rank its place in the list by s, from 1. w_ij is LambdaRank's weight: by how much
the discounted gain of the list would change if both swapped places, so that the top of the list counts most. Derived
from LambdaRank (Burges et al. 2006) as LiPO (arXiv 2402.01878) carries it over to DPO's implied rewards. If all s are
equal, as at the beginning, earlier completions count as higher, else all pair weights would be zero.

The paper builds lists from trees of thought, and scales the reward of each step by how far it differs between the
branches. Here a list is the group of a prompt, and every token counts the same: a common beginning cancels in s_i - s_j
anyway.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn import functional

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.implied_rewards import implied_of_completions
from models.parts.shared.within_groups import same_group


def ranks(scores: Tensor, together: Tensor) -> Tensor:
    """Return the place of each completion in its group by descending score, from 1, [completions]; ties in their order.

    Args:
        scores: what is ranked, [completions].
        together: whether two completions are of one group, [completions, completions], bool.
    """
    earlier = torch.ones_like(together).tril(-1)
    ahead = (scores[None, :] > scores[:, None]) | ((scores[None, :] == scores[:, None]) & earlier)
    return 1 + (ahead & together).sum(-1)


def list_weights(worth: Tensor, rank: Tensor) -> Tensor:
    """Return by how much the discounted gain changes if row and column swap places, >= 0.

    The result is [completions, completions].
    """
    gain, discount = 2.0**worth, 1.0 / torch.log2(1.0 + rank.to(worth))
    return (gain[:, None] - gain[None, :]).abs() * (discount[:, None] - discount[None, :]).abs()


@part("tpo")
class Tpo(Objective):
    """LambdaRank loss per group on implied rewards; needs a reference."""

    level = "group"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, as in DPO."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each group, [groups], nats.

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: the reference's log-probs, [tokens], the rewards, [completions], and the groups.
        """
        implied = implied_of_completions(log_prob, batch, self.beta)
        worth, together = batch.reward, same_group(batch.group)
        weight = list_weights(worth, ranks(implied.detach(), together))
        better = (together & (worth[:, None] > worth[None, :])).to(implied)
        margin = implied[:, None] - implied[None, :]
        loss = batch.sum_by_group((better * weight * -functional.logsigmoid(margin)).sum(-1))
        ordered = batch.sum_by_group((better * (margin.detach() > 0)).sum(-1))
        watch = {
            "ordered_share": ordered / batch.sum_by_group(better.sum(-1)).clamp(min=1),
            "list_weight": batch.sum_by_group((better * weight).sum(-1)),
        }
        return loss, {name: value.detach() for name, value in watch.items()}
