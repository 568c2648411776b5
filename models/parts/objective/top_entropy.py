"""Policy gradient at the forks alone: only the tokens of highest entropy are trained on (arXiv 2506.01939).

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

from models.method.registry import part
from models.method.rollout import TokenBatch
from models.method.round_tokens import RoundTokens, highest
from models.parts.objective.grpo import Grpo


@part("top_entropy")
class TopEntropy(Grpo):
    """GRPO's surrogate at the tokens of highest entropy."""

    kl: NonNegativeFloat = 0.0
    share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """Part of a round's tokens that are trained on."""

    def mark(self, tokens: RoundTokens) -> Tensor:
        """Mark the tokens of highest entropy, [tokens], bool."""
        return highest(tokens.entropy, self.share)

    def _surrogate(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        surrogate, watch = super()._surrogate(log_prob, batch)
        return torch.where(batch.marked, surrogate, 0.0), watch | {"marked_share": batch.marked.to(surrogate)}
