"""Group sequence policy optimisation: the ratio is that of the whole completion, and so is the clip (GSPO, Zheng et al.
2025, arXiv 2507.18071).

    s_i = (pi(y_i) / pi_old(y_i))^(1 / |y_i|) = exp(mean over t of log pi(y_t) / pi_old(y_t))
    loss = -w_i * min(s_i * A_i, clip(s_i, 1 - low, 1 + high) * A_i)

A reward belongs to a completion, and the product of its tokens' ratios is what corrects its sampling; the root of its
length keeps completions of all lengths in one range, which is narrow: a thousandth of GRPO's. With an advantage for
each token (`gspo_token`) the value of the ratio is that of the completion and its gradient that of the token,

    s_it = sg[s_i] * pi(y_t) / sg[pi(y_t)]

so that where all tokens of a completion have one advantage both are the same. w is the correction of the engine's
log-probs to the learner's, the mean over a completion's tokens.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.clipped_ratio import ClipSettings, clipped
from models.parts.shared.importance import importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("gspo")
class Gspo(ClipSettings):
    """Clipped surrogate, completion by completion."""

    level = "completion"
    clip_low: Share | None = 3e-4
    clip_high: NonNegativeFloat | None = 4e-4

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each completion, [completions].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: advantages and the log-probs under the engine and the old policy, [tokens] each.
        """
        ratio = torch.exp(log_prob / batch.lengths - batch.mean_by_completion(batch.old))
        surrogate, watch = clipped(ratio, batch.mean_by_completion(batch.advantage), self)
        weight, of_weight = importance_weight(batch, self)
        watch |= {name: batch.mean_by_completion(value) for name, value in of_weight.items()}
        return -batch.mean_by_completion(weight) * surrogate, watch


@part("gspo_token")
class GspoToken(ClipSettings, KlSettings):
    """GSPO with an advantage per token; equal to `gspo` for constant advantages and normalisation by completion."""

    level = "token"
    clip_low: Share | None = 3e-4
    clip_high: NonNegativeFloat | None = 4e-4

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        of_completion = torch.exp(batch.mean_by_completion(log_prob.detach() - batch.old))[batch.completion]
        ratio = of_completion * torch.exp(log_prob - log_prob.detach())
        surrogate, watch = clipped(ratio, batch.advantage, self)
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl
