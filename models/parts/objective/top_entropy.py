"""Policy gradient at forking tokens alone: only the tokens of highest entropy are trained on (arXiv 2506.01939).

    loss of a token = GRPO's where its entropy is among the highest `share` of the round's, else the KL term alone

Most tokens of an answer follow from the text before them; a few, at which the policy is unsure, decide its course. The
mean is still one over all tokens, so that a token that counts does not count more for being one of few. The entropies
are those of the policy as the round began, so that the forks stay the same through its steps.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.method.objective import RoundTokens, highest
from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.shared.clipped_ratio import clipped
from models.parts.shared.importance import importance_weight
from models.parts.shared.kl_term import kl_term


@part("top_entropy")
class TopEntropy(Grpo):
    """GRPO's surrogate at the tokens of highest entropy."""

    kl: NonNegativeFloat = 0.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Share of a round's tokens that are trained on."""

    def mark(self, tokens: RoundTokens) -> Tensor:
        """Mark the tokens of highest entropy, [tokens], bool."""
        return highest(tokens.entropy, self.share)

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        surrogate, watch = clipped(torch.exp(log_prob - batch.old), batch.advantage, self)
        surrogate = torch.where(batch.marked, surrogate, 0.0)
        watch["marked_share"] = batch.marked.to(surrogate)
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl
