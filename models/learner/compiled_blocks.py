"""The arithmetic of one block of logits as two functions that torch compiles for a GPU.

Eager, each operation reads and writes the whole block: about 50 bytes an entry forward and 32 backward. Compiled, each
function reads the product of states and projection twice at most and writes what is returned. The sums are the same
up to rounding. `models.learner.fused_log_probs` calls them for a model whose layers are compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

MODELS: WeakSet[nn.Module] = WeakSet()
"""Models whose layers and blocks of the output projection are compiled."""


def block_sums(
    product: Tensor, place: Tensor, softcap: float | None, temperature: float, wide: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the softmax sums of one block of logits, [tokens] each, in the dtype `wide`.

    Args:
        product: states times projection, [tokens, columns].
        place: column of each token's target, [tokens]; outside of the block if the target is in another one.
        softcap: logits are capped to c * tanh(logit / c); None: they are not.
        temperature: divides the logits.
        wide: dtype of the sums.

    Returns:
        z of the target (zero if it is not in the block), the largest z, the sum of exp(z - largest), and the
        sum of exp(z - largest) * (z - largest).
    """
    z = _logits(product, softcap, temperature, wide)
    chosen = torch.where(_is_target(product, place), z, 0.0).sum(1)
    largest = z.amax(1)
    below = z - largest[:, None]
    e = below.exp()
    return chosen, largest, e.sum(1), (e * below).sum(1)


def block_gradient(
    product: Tensor,
    place: Tensor,
    lse: Tensor,
    of_log_prob: Tensor,
    entropy: Tensor | None,
    of_entropy: Tensor | None,
    softcap: float | None,
    temperature: float,
) -> Tensor:
    """Compute the gradient by a block's product of states and projection, [tokens, columns], in the product's dtype.

    Args:
        product, place, softcap, temperature: see `block_sums`.
        lse: log-sum-exp of all logits, [tokens]; its dtype is that of the sums.
        of_log_prob: gradient of the targets' log-probs, [tokens].
        entropy, of_entropy: entropies and their gradient, [tokens]; None if no gradient flows through them.
    """
    z = _logits(product, softcap, temperature, lse.dtype)
    log_p = z - lse[:, None]
    p = log_p.exp()
    d_z = torch.where(_is_target(product, place), of_log_prob[:, None], 0.0) - p * of_log_prob[:, None]
    if of_entropy is not None and entropy is not None:
        d_z = d_z - p * of_entropy[:, None] * (torch.where(p > 0, log_p, 0.0) + entropy[:, None])
    if softcap is not None:
        d_z = d_z * (1.0 - (z * temperature / softcap).square())
    return (d_z / temperature).to(product.dtype)


@lru_cache(maxsize=2)
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `block_sums` or `block_gradient`, once in a process, for blocks of any size."""
    made: Callable[..., Any] = torch.compile(function, dynamic=True)
    return made


def _logits(product: Tensor, softcap: float | None, temperature: float, wide: torch.dtype) -> Tensor:
    z = product.to(wide)
    if softcap is not None:
        z = softcap * torch.tanh(z / softcap)
    return z / temperature


def _is_target(product: Tensor, place: Tensor) -> Tensor:
    """Return whether each column is a token's target, [tokens, columns], bool."""
    return torch.arange(product.shape[1], device=product.device) == place[:, None]
