"""Loss normalisation for all methods: the weight of every token (or completion) in the loss of a whole batch.

A loss is sum(weight * loss of unit). The weights are fixed for the whole batch before it is cut, so the loss cannot
depend on micro-batches, on their order or on gradient accumulation.

- `token`: every token counts the same (DAPO, and supervised fine-tuning).
- `completion`: every completion counts the same, its tokens share its weight (GRPO, arXiv 2402.03300).
- `constant`: every token weighs 1 / (completions * longest), free of any length bias (Dr. GRPO, arXiv 2503.20783).

An entropy bonus is a mean over tokens under all three: with a completion's share or a constant, the effect of a nat of
entropy would depend on the lengths of the completions, or on the longest that a recipe allows.

The batch is one optimiser step: the completions of its minibatch that a selector has left and that have a token that is
trained on, not those that were sampled. If `drop_flat` leaves few groups, each of them weighs more, under every
normalisation: the direction of the mean gradient stays and its length grows by sampled / left. Only with `select: all`
is `constant` the same factor in every round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Normalisation = Literal["token", "completion", "constant"]


def token_weights(lengths: Sequence[int], normalisation: Normalisation, longest: int) -> list[Tensor]:
    """Compute the weight of every token of every completion, [completions] tensors of [tokens of it], float64.

    Args:
        lengths: tokens of each completion of the whole batch, [completions].
        normalisation: `token`, `completion` or `constant`; see above.
        longest: largest number of tokens that a completion may have, for `constant`.
    """
    tokens, completions = sum(lengths), len(lengths)

    def weight(length: int) -> float:
        if normalisation == "token":
            return 1.0 / tokens
        if normalisation == "completion":
            return 1.0 / (completions * length)
        return 1.0 / (completions * longest)

    return [torch.full((length,), weight(length), dtype=torch.float64) for length in lengths]


def entropy_term(entropy: Tensor, bonus: float, tokens: int) -> Tensor:
    """Compute one row's entropy term in the loss of the whole batch; the rows' terms sum to -bonus * mean entropy.

    Args:
        entropy: entropy of the policy at the row's trained tokens, [tokens of the row], nats; gradient flows.
        bonus: weight of the mean entropy, in nats.
        tokens: trained tokens of the whole batch.
    """
    return -bonus * entropy.sum() / tokens
