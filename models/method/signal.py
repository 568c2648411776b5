"""The output of an advantage: how much better than expected, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Signal:
    """How much better than expected, token by token, [completions] tensors of [tokens of it] each."""

    tokens: Sequence[Tensor]
    """Advantage of each token."""
    returns: Sequence[Tensor] | None = None
    """Target of the critic at each token."""

    @staticmethod
    def of_completions(values: Tensor, lengths: Tensor) -> Signal:
        """Repeat a completion's value at each of its tokens.

        Args:
            values: one a completion, [completions].
            lengths: tokens of each, [completions], int64.
        """
        return Signal(values.repeat_interleave(lengths).split(lengths.tolist()))
