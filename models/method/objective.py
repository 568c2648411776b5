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
"""Unit of an objective's loss: tokens, completions, pairs of completions of the same prompt, or groups."""


class RoundTokens:
    """A round's tokens that are trained on, completion after completion; values are computed only if requested."""

    def __init__(self, chosen: Scored, advantage: PerToken, readings: Readings, round_number: int) -> None:
        """Begin without any values.

        Args:
            chosen: the completions that are trained on.
            advantage: of their tokens, [completions] tensors of [tokens of it].
            readings: of the policy as the round began.
            round_number: from 0; seeds random draws.
        """
        self.round_number = round_number
        self._chosen, self._advantage, self._readings = chosen, advantage, readings

    @cached_property
    def advantage(self) -> Tensor:
        """How much better than expected, [tokens]."""
        return self._trained(self._advantage)

    @cached_property
    def log_prob(self) -> Tensor:
        """Log-probs under the policy as the round began, [tokens], nats."""
        return self._trained(self._readings.policy(self._chosen.rollouts))

    @cached_property
    def entropy(self) -> Tensor:
        """Entropy of that policy's distribution at each token, [tokens], nats; one more pass over the round."""
        return self._trained(self._readings.entropy(self._chosen.rollouts))

    @cached_property
    def _flags(self) -> Tensor:
        """Whether each token of the round is trained on, [all tokens], bool."""
        rows = [rollout.trained or (True,) * len(rollout.completion) for rollout in self._chosen.rollouts]
        return torch.tensor([flag for row in rows for flag in row])

    def _trained(self, rows: PerToken) -> Tensor:
        return torch.cat([row.cpu() for row in rows])[self._flags]

    def by_completion(self, marked: Tensor) -> list[Tensor]:
        """Return marks of the tokens that are trained on, [tokens], as rows of whole completions, False elsewhere."""
        whole = torch.zeros_like(self._flags)
        whole[self._flags] = marked.cpu()
        return list(whole.split(self._chosen.lengths.tolist()))


def highest(values: Tensor, share: float) -> Tensor:
    """Return which of `values` [tokens] are among the highest `share`, [tokens], bool: at least one, and equals."""
    count = max(1, int(share * len(values)))
    return values >= values.topk(count).values[-1]


class Objective(SlotPart):
    """The loss that the policy minimises."""

    slot = "objective"
    level: ClassVar[Level]
    """Unit of the loss: a token, a completion, a pair or a group (whose completions are in one row). No default."""

    @property
    def needs_group(self) -> bool:
        """Whether it compares the completions of a group."""
        return self.level == "group"

    @property
    def reads_tokens(self) -> bool:
        """Whether it receives the log-prob of each token instead of sums although its loss is not per token."""
        return False

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
        """Weight of the tokens' mean entropy, nats; the fit subtracts the product, however the loss is averaged."""
        return 0.0

    @property
    def divergence(self) -> Divergence | None:
        """The divergence that the batch contains as `TokenBatch.divergence`; None: none is computed."""
        return None

    def mark(self, tokens: RoundTokens) -> Tensor | None:
        """Return which tokens the loss treats differently (`TokenBatch.marked`), [tokens], bool; None: none."""
        return None

    @abstractmethod
    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each unit before any reduction, and values to log of each, no gradient; `log_prob`, by
        the level, is [tokens] (also for one that `reads_tokens`), [completions] (sums; of a group's objective too) or
        [pairs, 2]."""
