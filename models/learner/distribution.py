"""The distribution over the next token: the model's own, or one that is cut as the engine cuts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """The distribution over the next token, which the engine draws from."""

    temperature: float = 1.0
    """Divides the logits."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability stay."""
    top_k: int = 0
    """Only the likeliest `top_k` stay; zero keeps all."""

    @property
    def cut(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.top_p < 1.0 or self.top_k > 0


AS_IT_IS = Distribution()
"""The model's own distribution: temperature 1, nothing cut."""


class Mask(Protocol):
    """The mask of the vocabulary by another model after each of the hidden states that are read."""

    def outside(self, rows: slice) -> Tensor:
        """Return whether each token cannot be drawn after the states of `rows`, [rows, vocabulary], bool."""
        ...


def least_kept(z: Tensor, distribution: Distribution) -> Tensor:
    """Return the smallest logit that top-k and then top-p leave, [tokens, vocabulary] -> [tokens].

    Top-k keeps every logit as large as the k-th. Top-p, on the rest, drops the unlikeliest tokens as long as their
    probabilities together stay within 1 - top_p, and always keeps the likeliest: the rule of vLLM's sampler.
    """
    rising = z.sort(dim=1).values
    least = rising[:, 0]
    if 0 < distribution.top_k < z.shape[1]:
        least = rising[:, z.shape[1] - distribution.top_k]
        rising = rising.masked_fill(rising < least[:, None], float("-inf"))
    if distribution.top_p < 1.0:
        dropped = torch.softmax(rising, dim=1).cumsum(1) <= 1.0 - distribution.top_p
        dropped[:, -1] = False
        least = rising.gather(1, dropped.sum(1, keepdim=True)).squeeze(1)
    return least
