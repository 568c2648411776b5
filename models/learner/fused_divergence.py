"""Divergence of the policy's next-token distribution from a target's, without tokens x vocabulary in memory.

With p the policy, q the target, m = beta q + (1 - beta) p their mixture (generalised Jensen-Shannon divergence, GKD,
arXiv 2306.13649, equation 1, and its limits as the authors and TRL have them):

    0 < beta < 1    D = beta KL(q || m) + (1 - beta) KL(p || m)      dD / dz = (1 - beta) p (log p / m - KL(p || m))
    beta = 0        D = KL(q || p), forward KL                       dD / dz = p - q
    beta = 1        D = KL(p || q), reverse KL                       dD / dz = p (log p / q - D)

z are the policy's logits / temperature. Blocks are over tokens, each with whole rows of the vocabulary, as both
distributions must be normalised before they are compared; the backward pass computes each block again. No gradient
flows to the target. The derivatives by z follow from dD / dp_i = (1 - beta) (log p_i / m_i) and the softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from models.learner.distribution import Distribution
from models.learner.fused_log_probs import Head
from models.learner.logit_blocks import BLOCK_ELEMENTS, GPU_BLOCK_ELEMENTS, Blocks

BUFFERS = 4
"""Number of blocks of one size in memory at the same time: both distributions, their mixture and the slope."""


class TargetDistribution(Protocol):
    """Interface of the target: the next-token distribution that the policy's is compared with."""

    @property
    def vocabulary(self) -> int:
        """Number of rows of its output projection."""
        ...

    def log_probs(self, rows: slice, width: int) -> Tensor:
        """Return the log-probs of the first `width` tokens of the vocabulary for `rows`, [rows, width], nats."""
        ...


@dataclass(frozen=True)
class Logits:
    """Target distribution: the softmax of a weighted sum of the logits of one or several models."""

    terms: Sequence[tuple[Tensor, Head, Tensor | float]]
    """Hidden states [tokens, hidden], output projection and weight of each, a number or [tokens]. No gradient."""
    temperature: float = 1.0
    """Divides the sum."""

    @property
    def vocabulary(self) -> int:
        """Smallest number of rows of the projections."""
        return min(head.weight.shape[0] for _, head, _ in self.terms)

    def log_probs(self, rows: slice, width: int) -> Tensor:
        """See `TargetDistribution.log_probs`."""
        total: Tensor | None = None
        for states, head, weight in self.terms:
            z = logits_of(states[rows], head, width, self.temperature)
            z = z * (weight[rows, None].to(z) if isinstance(weight, Tensor) else weight)
            total = z if total is None else total + z
        assert total is not None, "a target has a term"
        return torch.log_softmax(total, dim=-1)


def logits_of(states: Tensor, head: Head, width: int, temperature: float = 1.0) -> Tensor:
    """Compute logits / temperature of the first `width` tokens, [rows, hidden] -> [rows, width], float32 or wider."""
    wide = torch.promote_types(states.dtype, torch.float32)
    scaled = states if head.scale == 1.0 else states * head.scale
    matrix = head.weight.to(states.dtype)
    return Blocks(matrix, head.bias, head.softcap, Distribution(temperature=temperature), wide, 0).logits(
        scaled, slice(0, width)
    )


def token_blocks(tokens: int, width: int, device: torch.device, block_elements: int | None = None) -> list[slice]:
    """Cut the tokens into blocks of which `BUFFERS`, each tokens x `width`, together have the usual block size."""
    size = block_elements or (BLOCK_ELEMENTS if device.type == "cpu" else GPU_BLOCK_ELEMENTS)
    step = max(1, size // (BUFFERS * width))
    return [slice(start, min(tokens, start + step)) for start in range(0, tokens, step)]


@torch.no_grad()
def absolute_gap(first: TargetDistribution, other: TargetDistribution, tokens: int, device: torch.device) -> Tensor:
    """Sum |p_first - p_other| over the vocabulary at each token, twice the total variation distance, [tokens]."""
    width = min(first.vocabulary, other.vocabulary)
    gaps = [
        (first.log_probs(rows, width).exp() - other.log_probs(rows, width).exp()).abs().sum(-1)
        for rows in token_blocks(tokens, width, device)
    ]
    return torch.cat(gaps)


def fused_divergence(
    hidden: Tensor,
    head: Head,
    target: TargetDistribution,
    beta: float,
    temperature: float = 1.0,
    *,
    compute: torch.dtype | None = None,
    block_elements: int | None = None,
) -> Tensor:
    """Compute the divergence of the policy's next-token distribution from the target's, [tokens], nats; gradient flows.

    Both are distributions over the tokens that both projections have rows for: models of one tokenizer differ in how
    many rows they have for tokens that do not exist.

    Args:
        hidden: the policy's states, [tokens, hidden].
        head: its output projection.
        target: the target distribution; frozen.
        beta: number in [0, 1]; 0 is forward KL, 1 reverse KL, between them the generalised Jensen-Shannon divergence.
        temperature: divides the policy's logits; the target has its own.
        compute: dtype of the matrix products, None for that of `hidden`; all sums are at least float32.
        block_elements: largest tokens x vocabulary of all buffers of a block; None: chosen for the device.
    """
    width = min(head.weight.shape[0], target.vocabulary)
    values: Tensor = _Fused.apply(  # type: ignore[no-untyped-call]
        hidden if head.scale == 1.0 else hidden * head.scale,
        head.weight,
        head.bias,
        head.softcap,
        target,
        (beta, temperature, width),
        compute or hidden.dtype,
        block_elements,
    )
    return values


def divergence_at(log_p: Tensor, log_q: Tensor, beta: float) -> tuple[Tensor, Tensor]:
    """Compute the divergence of p from q, and its gradient by the logits of p.

    Args:
        log_p, log_q: log-probs, [rows, vocabulary].
        beta: see `fused_divergence`.

    Returns:
        The divergence, [rows], and the gradient, [rows, vocabulary].
    """
    p = log_p.exp()
    if beta == 0.0:
        q = log_q.exp()
        return (q * (log_q - log_p)).sum(-1), p - q
    if beta == 1.0:
        log_ratio = log_p - log_q
        value = (p * log_ratio).sum(-1)
        return value, p * (log_ratio - value[:, None])
    share = torch.tensor(beta, dtype=log_p.dtype, device=log_p.device)
    log_m = torch.logaddexp(log_q + share.log(), log_p + torch.log1p(-share))
    log_ratio = log_p - log_m
    of_p = (p * log_ratio).sum(-1)
    of_q = (log_q.exp() * (log_q - log_m)).sum(-1)
    return beta * of_q + (1.0 - beta) * of_p, (1.0 - beta) * p * (log_ratio - of_p[:, None])


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        softcap: float | None,
        target: TargetDistribution,
        formula: tuple[float, float, int],
        compute: torch.dtype,
        block_elements: int | None,
    ) -> Tensor:
        """See `fused_divergence`."""
        beta, temperature, width = formula
        wide = torch.promote_types(hidden.dtype, torch.float32)
        states = hidden.to(compute)
        blocks = Blocks(weight.to(compute), bias, softcap, Distribution(temperature=temperature), wide, 0)
        values = torch.empty(len(hidden), dtype=wide, device=hidden.device)
        for rows in token_blocks(len(hidden), width, hidden.device, block_elements):
            log_p = torch.log_softmax(blocks.logits(states[rows], slice(0, width)), dim=-1)
            values[rows] = divergence_at(log_p, target.log_probs(rows, width).to(wide), beta)[0]
        ctx.save_for_backward(states, weight, bias)
        ctx.softcap, ctx.target, ctx.formula, ctx.compute = softcap, target, formula, compute
        ctx.block_elements, ctx.dtype = block_elements, hidden.dtype
        return values

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute gradients of hidden, weight and bias; each block is computed again."""
        (outer,) = gradients
        states, weight, bias = ctx.saved_tensors
        beta, temperature, width = ctx.formula
        wide = outer.dtype
        matrix = weight.to(ctx.compute)
        blocks = Blocks(matrix, bias, ctx.softcap, Distribution(temperature=temperature), wide, 0)
        wanted_hidden, wanted_weight, wanted_bias = ctx.needs_input_grad[:3]
        d_states = torch.zeros(states.shape, dtype=wide, device=states.device) if wanted_hidden else None
        d_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if wanted_weight else None
        d_bias = None
        if bias is not None and wanted_bias:
            d_bias = torch.zeros(bias.shape, dtype=wide, device=bias.device)
        for rows in token_blocks(len(states), width, states.device, ctx.block_elements):
            z = blocks.logits(states[rows], slice(0, width))
            slope = blocks.slope(z)
            log_q = ctx.target.log_probs(rows, width).to(wide)
            d_z = divergence_at(torch.log_softmax(z, dim=-1), log_q, beta)[1] * outer[rows, None]
            if slope is not None:
                d_z *= slope
            d_z /= temperature
            if d_bias is not None:
                d_bias[:width] += d_z.sum(0)
            d_z = d_z.to(ctx.compute)
            if d_states is not None:
                d_states[rows] = (d_z @ matrix[:width]).to(wide)
            if d_weight is not None:
                d_weight[:width] += (d_z.T @ states[rows]).to(wide)
        return (
            None if d_states is None else d_states.to(ctx.dtype),
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None or bias is None else d_bias.to(bias.dtype),
            *(None,) * 5,
        )
