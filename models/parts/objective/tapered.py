"""Tapered off-policy REINFORCE: reuse old and even wrong completions without a trust region (TOPR; paper 317).

    loss = -weight * A * log pi,   weight = 1 where A >= 0, else min(pi / mu, ceiling)

of whole completions. Good ones are imitated with weight one, however old; bad ones are pushed away only as far as the
policy still believes in them: the push fades as pi falls below mu, and nothing can explode. No gradient flows through
the weight. On policy it is REINFORCE; the baseline of the advantage decides how many completions count as bad.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


@part("tapered")
class Tapered(Objective):
    """Policy gradient on whole completions with a tapered weight; needs neither a reference nor fresh samples."""

    level = "completion"
    ceiling: PositiveFloat = 1.0
    """Largest importance weight of a completion with negative advantage. One keeps the paper's form."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages and the log-probs under the policy that sampled, [tokens] each.
        """
        advantage = batch.mean_by_completion(batch.advantage)
        ratio = torch.exp(log_prob.detach() - batch.sum_by_completion(batch.behaviour))
        bad = advantage < 0
        weight = torch.where(bad, ratio.clamp(max=self.ceiling), torch.ones_like(ratio))
        watch = {
            "weight": weight,
            "bad_share": bad.to(log_prob),
            "tapered_share": (bad & (ratio < self.ceiling)).to(log_prob),
        }
        return -weight * advantage * log_prob, {name: value.detach() for name, value in watch.items()}
