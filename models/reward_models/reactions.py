"""A reward model of reactions: the probability that a user likes a single completion (RLUF, paper 196).

    P(liked | x, y) = sigmoid(score(x, y))
    loss of a pair = mean over its two completions of  -y log P - (1 - y) log(1 - P)        y: 1 if it was liked

Users react to single completions, rarely and sometimes wrongly, and do not compare them. Here preferences simulate a
log: the better completion is liked with probability `liked`, the worse with probability `mistaken`, with a fixed
outcome that depends on its tokens. The model learns the probability itself, while a Bradley-Terry score has no level.
With the probabilities 1 and 0 it classifies two kinds of text (paper 146).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from models.base.bounds import Share
from models.base.seeds import seed_of


@dataclass(frozen=True, kw_only=True)
class ReactionSettings:
    """Reaction rates of users. Section `reward_model.fit.reactions:`."""

    liked: Share = 1.0
    """Probability that a better completion is liked."""
    mistaken: Share = 0.0
    """Probability that a worse completion is liked."""

    def __post_init__(self) -> None:
        if self.liked <= self.mistaken:
            raise ValueError(f"liked is {self.liked:g}: reactions say something only where it is above mistaken")

    def to_pair(self, prompt: Sequence[int], chosen: Sequence[int], rejected: Sequence[int]) -> tuple[float, float]:
        """Return whether the better and the worse completion are liked, 1 or 0 each."""
        return self._met(self.liked, prompt, chosen), self._met(self.mistaken, prompt, rejected)

    def _met(self, chance: float, prompt: Sequence[int], completion: Sequence[int]) -> float:
        if chance in (0.0, 1.0):
            return chance
        return float(seed_of(0, f"reaction to {list(completion)} after {list(prompt)}") < chance * 2**32)


def reaction_loss(chosen: Tensor, rejected: Tensor, liked: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Compute the loss of each pair in nats, [pairs], before any reduction.

    Args:
        chosen: scores of the chosen completions, [pairs].
        rejected: scores of the rejected ones, [pairs].
        liked: whether each of the two was liked, 1 or 0, [pairs, 2].
        label_smoothing: probability that a reaction is wrong.
    """
    wanted = liked * (1 - 2 * label_smoothing) + label_smoothing
    scores = torch.stack([chosen, rejected], dim=-1)
    return functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none").mean(-1)
