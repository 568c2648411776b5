"""All tokens of a round at once, for objectives that treat some of them differently.

A quantile needs many tokens, and a row has few: tokens marked row by row would depend on how a round is cut into steps
and rows. So they are marked once, before the cut, from values that are known then: advantages, and log-probs and
entropies under the policy as the round began. The marked tokens then stay the same for all steps of the round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from models.method.readings import Readings
from models.method.rollout import Scored


class RoundTokens:
    """A round's tokens that are trained on, completion after completion; values are computed only if requested."""

    def __init__(self, chosen: Scored, advantage: Sequence[Tensor], readings: Readings, round_number: int) -> None:
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

    def _trained(self, rows: Sequence[Tensor]) -> Tensor:
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
