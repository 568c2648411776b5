"""Settings of the next-token distribution: temperature, top-k and top-p, by the rule of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Settings of the next-token distribution that the engine draws from."""

    temperature: float = 1.0
    """Divides the logits."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability stay."""
    top_k: int = 0
    """Only the likeliest `top_k` stay; zero keeps all."""

    @property
    def cut(self) -> bool:
        """Whether top-p or top-k excludes some tokens."""
        return self.top_p < 1.0 or self.top_k > 0


MODEL_DISTRIBUTION = Distribution()
"""The model's own distribution: temperature 1, no token excluded."""


class Mask(Protocol):
    """Interface of a mask by another model: the tokens that may not be drawn after each hidden state."""

    def outside(self, rows: slice) -> Tensor:
        """Return whether the mask excludes each token after the states of `rows`, [rows, vocabulary], bool."""
        ...


def least_kept(z: Tensor, distribution: Distribution) -> Tensor:
    """Return the smallest logit that top-k and then top-p keep, [tokens, vocabulary] -> [tokens].

    Top-k keeps every logit that is at least the k-th largest. Top-p, on the rest, drops the unlikeliest tokens as long
    as their probabilities together stay within 1 - top_p, and always keeps the likeliest: the rule of vLLM's sampler.

    Args:
        z: logits / temperature, [tokens, vocabulary].
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
