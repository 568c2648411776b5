"""The slot `objective`: the loss that the policy minimises, and the tokens that it may mark.

A quantile needs many tokens, and a row has few: tokens marked row by row would depend on how a round is cut into steps
and rows. So they are marked once, before the cut, from values that are known then: advantages, and log-probs and
entropies under the policy as the round began. The marked tokens then stay the same for all steps of the round.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import ClassVar, Literal

import torch
from torch import Tensor

from models.learner.packing import PerToken
from models.method.policy_outputs import Divergence
from models.method.readings import Readings
from models.method.scored import Scored
from models.method.slot_part import SlotPart
from models.method.token_batch import TokenBatch

Level = Literal["token", "completion", "pair", "group"]
"""Unit of an objective's loss: a token, a completion, a pair of completions of one prompt, or a group."""


class RoundTokens:
    """The trained tokens of a round, completion after completion; their values are computed on first request."""

    def __init__(self, chosen: Scored, advantage: PerToken, readings: Readings, round_number: int) -> None:
        """Begin without any values.

        Args:
            chosen: the completions that are trained on.
            advantage: advantage of their tokens, [completions] tensors of [tokens of it].
            readings: readings of the policy as the round began.
            round_number: number of the round, from 0; seeds random draws.
        """
        self.round_number = round_number
        self._chosen, self._advantage, self._readings = chosen, advantage, readings

    @cached_property
    def advantage(self) -> Tensor:
        """Advantage of each token, [tokens]."""
        return self._trained(self._advantage)

    @cached_property
    def log_prob(self) -> Tensor:
        """Log-probs under the policy as the round began, [tokens], nats."""
        return self._trained(self._readings.policy(self._chosen.rollouts))

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of the same policy's distribution at each token, [tokens], nats; one more pass over the round."""
        return self._trained(self._readings.entropy(self._chosen.rollouts))

    @cached_property
    def _flags(self) -> Tensor:
        """Whether each token of the round is trained on, [all tokens], bool."""
        rows = [rollout.trained or (True,) * len(rollout.completion) for rollout in self._chosen.rollouts]
        return torch.tensor([flag for row in rows for flag in row])

    def _trained(self, rows: PerToken) -> Tensor:
        return torch.cat([row.cpu() for row in rows])[self._flags]

    def by_completion(self, marked: Tensor) -> list[Tensor]:
        """Split marks of the trained tokens, [tokens], into rows of whole completions; other tokens get False."""
        whole = torch.zeros_like(self._flags)
        whole[self._flags] = marked.cpu()
        return list(whole.split(self._chosen.lengths.tolist()))


def highest(values: Tensor, share: float) -> Tensor:
    """Return whether each value is among the highest `share`, [tokens], bool; at least one is, and ties count."""
    count = max(1, int(share * len(values)))
    return values >= values.topk(count).values[-1]


class Objective(SlotPart):
    """Base class of objectives: the loss that the policy minimises."""

    slot = "objective"
    level: ClassVar[Level]
    """Unit of the loss: token, completion, pair, or group (whose completions are packed into one row). No default."""

    @property
    def needs_group(self) -> bool:
        """Whether it compares the completions of a group."""
        return self.level == "group"

    @property
    def reads_tokens(self) -> bool:
        """Whether it receives the log-prob of each token although its loss is not per token; else it receives sums."""
        return False

    @property
    def needs_companion(self) -> str:
        """Name of the companion model that another part of the recipe must provide; empty: none."""
        return ""

    @property
    def on_policy_only(self) -> bool:
        """Whether it is valid only for completions of the current policy."""
        return False

    @property
    def kl(self) -> float:
        """Weight of a KL to the reference in the loss; needs a reference unless it is zero."""
        return 0.0

    @property
    def entropy_bonus(self) -> float:
        """Weight of the tokens' mean entropy, nats, that the fit subtracts, however the loss is averaged."""
        return 0.0

    @property
    def divergence(self) -> Divergence | None:
        """The divergence to compute for the objective as `TokenBatch.divergence`; None: none."""
        return None

    def mark(self, tokens: RoundTokens) -> Tensor | None:
        """Return which of a round's tokens to mark for the loss as `TokenBatch.marked`, [tokens], bool; None: none."""
        return None

    @abstractmethod
    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each unit before any reduction, and values to log of each, no gradient; `log_prob`, by
        the level, is [tokens] (also for one that `reads_tokens`), [completions] (sums; of a group's objective too) or
        [pairs, 2]."""
