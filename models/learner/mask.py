"""The mask of tokens by a lagged copy of the policy, for log-probs of a masked policy (NLPO; paper 4).

    mask(before)        = smallest set of tokens that the lagged policy gives `top_p` together
    mu(token | before)  = pi(token | before) / Z(before) within the mask, zero outside;  Z = sum of pi over the mask

A mask is tokens x vocabulary and never stored: the lagged policy's hidden states are kept, from which each block of it
is computed when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.learner.distribution import Distribution
from models.learner.fused_log_probs import Head, next_token_log_probs
from models.learner.log_probs import output_head


@dataclass(frozen=True)
class Lagged:
    """The mask of a lagged policy after each hidden state. See `models.learner.distribution.Mask`."""

    states: Tensor
    """Its hidden states, [tokens, hidden]."""
    head: Head
    distribution: Distribution
    """The temperature that completions are drawn with, and the mask's top-p."""

    def outside(self, rows: slice) -> Tensor:
        """Return whether the mask excludes each token after the states of `rows`, [rows, vocabulary], bool."""
        return torch.isneginf(next_token_log_probs(self.states[rows], self.head, self.distribution))


def lagged_at(
    model: nn.Module, states: Sequence[Tensor], distribution: Distribution, autocast: torch.dtype | None
) -> Lagged:
    """Build the mask of some completions from the lagged policy's hidden states.

    Args:
        model: the lagged policy.
        states: [completions] tensors of [tokens of it, hidden].
        distribution: temperature, and the mask's top-p.
        autocast: as in the policy's own log-probs, whose sampler rounds in the same way.
    """
    joined = torch.cat(list(states))
    return Lagged(joined if autocast is None else joined.to(autocast), output_head(model, autocast), distribution)
