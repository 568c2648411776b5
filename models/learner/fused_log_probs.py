"""Hidden states to log-probs of chosen tokens and entropies, never holding tokens x vocabulary.

The projection runs in blocks over tokens and vocabulary; the softmax is put together block by block (the running
maximum and sums of the online softmax, Milakov & Gimelshein 2018) and the backward pass makes each block again. What
is kept between the two is one number a token; and the products of states and projection as they came out, where they
are so few that they cost less than making them again: the numbers are the same to the bit.
With z = logits / temperature, p = softmax(z):

    log p(t) = z_t - lse          d log p(t) / dz = onehot(t) - p
    H = lse - sum p z             dH / dz = -p (log p + H)

Sampling that cuts the distribution (top-k, then top-p, as vLLM and transformers do) is the same with p = 0 for what
was cut, so that learner and engine mean one distribution. Each row is then needed whole, so blocks are over tokens
only. The cut is constant for the gradient; the chosen token is always inside (rounding, or a policy that has moved
since it was drawn, could leave it outside, where the log-prob is minus infinity). The same holds where another model
masks tokens out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from models.learner.block_attention import LOG2_E

BLOCK_TOKENS = 256
BLOCK_ELEMENTS = 2**19
"""Largest tokens x vocabulary that one block holds: 2 MiB in float32, which stays in a processor's cache."""
KEPT_BYTES = 2**26
"""Most that all products of a batch may take on a CPU to be kept for the backward pass: 64 MiB. On a GPU none are."""
GPU_BLOCK_TOKENS = 4096
GPU_BLOCK_ELEMENTS = 2**28
"""The same on a GPU, where a block of 1 GiB keeps every multiprocessor busy."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Which distribution over the next token is meant: the one that the engine draws from."""

    temperature: float = 1.0
    """Divides the logits."""
    top_p: float = 1.0
    """Only the likeliest tokens that together reach this probability stay."""
    top_k: int = 0
    """Only the likeliest `top_k` stay; zero keeps all."""

    @property
    def cut(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.top_p < 1.0 or self.top_k > 0


AS_IT_IS = Distribution()
"""The model's own distribution: temperature 1, nothing cut."""


@dataclass(frozen=True)
class Head:
    """An output projection as numbers."""

    weight: Tensor
    """[vocabulary, hidden]."""
    bias: Tensor | None = None
    """[vocabulary]."""
    softcap: float | None = None
    """Logits are bent to c * tanh(logit / c) (Gemma)."""
    scale: float = 1.0
    """Multiplies the hidden states (Cohere, Granite)."""


class Mask(Protocol):
    """What another model leaves of the vocabulary after each of the hidden states that are read."""

    def outside(self, rows: slice) -> Tensor:
        """Tokens that cannot be drawn after the states of `rows`, [rows, vocabulary], bool."""
        ...


def fused_log_probs(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    distribution: Distribution = AS_IT_IS,
    *,
    compute: torch.dtype | None = None,
    block_elements: int | None = None,
    mask: Mask | None = None,
) -> tuple[Tensor, Tensor]:
    """Log-prob of `targets` and entropy of each distribution; gradient flows through both.

    Args:
        hidden: states that predict the targets, [tokens, hidden].
        head: the output projection.
        targets: token ids, [tokens].
        distribution: temperature and cut.
        compute: dtype of the matrix products, None for that of `hidden`; all sums are at least float32.
        block_elements: largest tokens x vocabulary of a block; None for what suits the device.
        mask: what else is left out before the distribution is normalised; None: nothing.

    Returns:
        Log-probs and entropies in nats, [tokens] each, float32 or the dtype of `hidden` if wider.
    """
    size = block_elements or (BLOCK_ELEMENTS if hidden.device.type == "cpu" else GPU_BLOCK_ELEMENTS)
    log_probs_and_entropies: tuple[Tensor, Tensor] = _Fused.apply(  # type: ignore[no-untyped-call]
        hidden if head.scale == 1.0 else hidden * head.scale,
        head.weight,
        head.bias,
        targets,
        head.softcap,
        distribution,
        compute or hidden.dtype,
        size,
        mask,
    )
    return log_probs_and_entropies


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        softcap: float | None,
        distribution: Distribution,
        compute: torch.dtype,
        size: int,
        mask: Mask | None,
    ) -> tuple[Tensor, Tensor]:
        """See `fused_log_probs`."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        states, matrix = hidden.to(compute), weight.to(compute)
        blocks = Blocks(matrix, bias, softcap, distribution, wide, size, mask)
        count = hidden.shape[0]
        chosen, lse, mean, least = (torch.empty(count, dtype=wide, device=hidden.device) for _ in range(4))
        keep = any(ctx.needs_input_grad) and kept_bytes(count, weight.shape[0], compute, hidden.device.type) > 0
        kept: list[Tensor] | None = [] if keep else None
        for rows in blocks.rows(count):
            chosen[rows], lse[rows], mean[rows], least[rows] = blocks.sums(states[rows], targets[rows], rows, kept)
        entropy = lse - mean
        ctx.save_for_backward(states, weight, bias, targets, lse, entropy, least, *(kept or ()))
        ctx.softcap, ctx.distribution, ctx.compute, ctx.size = softcap, distribution, compute, size
        ctx.dtype, ctx.mask = hidden.dtype, mask
        ctx.set_materialize_grads(False)  # an entropy that nobody uses has no gradient; zeros would have to be read
        return chosen - lse, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of hidden, weight and bias, each block's products made again where they were not kept."""
        of_log_prob, of_entropy = gradients
        states, weight, bias, targets, lse, entropy, least, *kept = ctx.saved_tensors
        products = iter(kept)
        wide = lse.dtype
        matrix = weight.to(ctx.compute)
        blocks = Blocks(matrix, bias, ctx.softcap, ctx.distribution, wide, ctx.size, ctx.mask)
        wanted_hidden, wanted_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        wanted_bias = bias is not None and ctx.needs_input_grad[2]
        if of_log_prob is None:
            of_log_prob = torch.zeros_like(lse)
        d_states = torch.zeros(states.shape, dtype=wide, device=states.device) if wanted_hidden else None
        d_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if wanted_weight else None
        d_bias = torch.zeros(weight.shape[0], dtype=wide, device=weight.device) if wanted_bias else None
        for rows in blocks.rows(states.shape[0]):
            for columns in blocks.columns(len(range(*rows.indices(states.shape[0])))):
                if kept:
                    z = blocks.bent(next(products), columns, keep=True)
                else:
                    z = blocks.logits(states[rows], columns)
                slope = blocks.slope(z)
                if blocks.cut:
                    blocks.leave_out(z, targets[rows], rows)
                    z.masked_fill_(z < least[rows, None], float("-inf"))
                log_p = z.sub_(lse[rows, None])
                if of_entropy is not None:
                    p = exp_(log_p.clone())
                    # p log p is zero where p is: a cut token's minus infinity must not meet it
                    inner = torch.where(p > 0, log_p, 0.0) + entropy[rows, None]
                    d_z = -p * (of_log_prob[rows, None] + of_entropy[rows, None] * inner)
                else:
                    d_z = exp_(log_p).mul_(-of_log_prob[rows, None])
                place = targets[rows] - columns.start
                here = (place >= 0) & (place < z.shape[1])
                d_z.scatter_add_(
                    1, place.clamp(0, z.shape[1] - 1)[:, None], (of_log_prob[rows] * here)[:, None].to(d_z.dtype)
                )
                if slope is not None:
                    d_z *= slope
                if ctx.distribution.temperature != 1.0:
                    d_z /= ctx.distribution.temperature
                if d_bias is not None:
                    d_bias[columns] += d_z.sum(0)
                d_z = d_z.to(ctx.compute)
                if d_states is not None:
                    d_states[rows] += d_z @ matrix[columns]
                if d_weight is not None:
                    d_weight[columns] += d_z.T @ states[rows]
        return (
            None if d_states is None else d_states.to(ctx.dtype),
            None if d_weight is None else d_weight.to(weight.dtype),
            None if d_bias is None or bias is None else d_bias.to(bias.dtype),
            *(None,) * 6,
        )


def kept_bytes(tokens: int, vocabulary: int, compute: torch.dtype, device: str) -> int:
    """Bytes of the products that are kept for the backward pass; zero where they are too many.

    Args:
        tokens: whose log-probs are read together.
        vocabulary: entries of the whole.
        compute: dtype of the products.
        device: cpu or cuda.
    """
    every = tokens * vocabulary * compute.itemsize
    return every if device == "cpu" and every <= KEPT_BYTES else 0


def exp_(values: Tensor) -> Tensor:
    """e to the power of `values`, in place; on a CPU by way of the base 2, which torch has vectorised everywhere."""
    return values.mul_(LOG2_E).exp2_() if values.device.type == "cpu" else values.exp_()


def block_shape(tokens: int, vocabulary: int, device: str, *, cut: bool) -> tuple[int, int]:
    """Tokens and entries of the vocabulary of the largest block of logits that is ever held.

    Args:
        tokens: whose log-probs are read together.
        vocabulary: entries of the whole.
        device: cpu or cuda.
        cut: whether some tokens cannot be drawn, so that rows are needed whole.
    """
    size = BLOCK_ELEMENTS if device == "cpu" else GPU_BLOCK_ELEMENTS
    rows = min(tokens, _row_step(vocabulary, device, size, cut=cut))
    return rows, vocabulary if cut else min(vocabulary, _column_step(rows, size))


def _row_step(vocabulary: int, device: str, size: int, *, cut: bool) -> int:
    if cut:
        return max(1, size // vocabulary)
    return BLOCK_TOKENS if device == "cpu" else GPU_BLOCK_TOKENS


def _column_step(rows: int, size: int) -> int:
    return max(256, size // max(1, rows))


@dataclass(frozen=True)
class Blocks:
    """The logits of a batch, block by block."""

    matrix: Tensor
    bias: Tensor | None
    softcap: float | None
    distribution: Distribution
    wide: torch.dtype
    size: int
    mask: Mask | None = None

    @property
    def cut(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return self.distribution.cut or self.mask is not None

    def rows(self, tokens: int) -> list[slice]:
        """Blocks of tokens."""
        step = _row_step(self.matrix.shape[0], self.matrix.device.type, self.size, cut=self.cut)
        return [slice(start, min(tokens, start + step)) for start in range(0, tokens, step)]

    def columns(self, tokens: int) -> list[slice]:
        """Blocks of the vocabulary for a block of `tokens`."""
        vocabulary = self.matrix.shape[0]
        step = vocabulary if self.cut else _column_step(tokens, self.size)
        return [slice(start, min(vocabulary, start + step)) for start in range(0, vocabulary, step)]

    def logits(self, states: Tensor, columns: slice, kept: list[Tensor] | None = None) -> Tensor:
        """z of a block, [tokens of it, vocabulary of it], in `wide`; the product that it comes from is added to `kept`,
        where that is a list."""
        product = states @ self.matrix[columns].T
        if kept is not None:
            kept.append(product)
        return self.bent(product, columns, keep=kept is not None)

    def bent(self, product: Tensor, columns: slice, *, keep: bool) -> Tensor:
        """z from the product of states and projection, [tokens of it, vocabulary of it], in `wide`.

        Args:
            product: left as it is where `keep`, else it may become z.
        """
        z = product.to(self.wide, copy=keep)
        if self.bias is not None:
            z += self.bias[columns]
        if self.softcap is not None:
            z = self.softcap * torch.tanh(z / self.softcap)
        if self.distribution.temperature != 1.0:
            z /= self.distribution.temperature
        return z

    def slope(self, z: Tensor) -> Tensor | None:
        """d capped logit / d logit of a block; None where there is no cap."""
        if self.softcap is None:
            return None
        return 1.0 - (z * self.distribution.temperature / self.softcap).square()

    def leave_out(self, z: Tensor, targets: Tensor, rows: slice) -> None:
        """Leave what the mask leaves out of whole rows of logits, in place; the target always stays."""
        if self.mask is not None:
            outside = self.mask.outside(rows).scatter_(1, targets[:, None], False)
            z.masked_fill_(outside, float("-inf"))

    def sums(
        self, states: Tensor, targets: Tensor, rows: slice, kept: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """z of the target, lse, mean of z under p, and the least z that was not cut, [tokens] each.

        Args:
            states: that predict the targets, [tokens of the block, hidden].
            targets: token ids, [tokens of the block].
            rows: where these tokens stand among all of them.
            kept: gets the products of states and projection, stretch of the vocabulary after stretch; None: not kept.
        """
        count = states.shape[0]
        largest = torch.full((count,), float("-inf"), dtype=self.wide, device=states.device)
        total, weighted, chosen = (torch.zeros(count, dtype=self.wide, device=states.device) for _ in range(3))
        least = largest
        for columns in self.columns(count):
            z = self.logits(states, columns, kept)
            place = targets - columns.start
            here = (place >= 0) & (place < z.shape[1])
            chosen = torch.where(here, z.gather(1, place.clamp(0, z.shape[1] - 1)[:, None]).squeeze(1), chosen)
            if self.cut:
                self.leave_out(z, targets, rows)
                least = torch.minimum(least_kept(z, self.distribution), chosen)
                z.masked_fill_(z < least[:, None], float("-inf"))
            bigger = torch.maximum(largest, z.amax(1))
            shrink = torch.exp(largest - bigger)
            below = z.sub_(bigger[:, None])
            e = exp_(below.clone())
            sum_of_e = e.sum(1)
            if self.cut:
                below.masked_fill_(e == 0, 0.0)
            total = total * shrink + sum_of_e
            weighted = weighted * shrink + torch.linalg.vecdot(e, below) + bigger * sum_of_e
            largest = bigger
        return chosen, largest + torch.log(total), weighted / total, least


def next_token_log_probs(hidden: Tensor, head: Head, distribution: Distribution) -> Tensor:
    """The whole distribution after each state, [rows, hidden] -> [rows, vocabulary], nats, float32 or wider.

    For drawing the next token of a few rows; `fused_log_probs` gives the same numbers for the tokens that were drawn.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    states = hidden if head.scale == 1.0 else hidden * head.scale
    whole = Blocks(head.weight, head.bias, head.softcap, distribution, wide, 0)
    z = whole.logits(states, slice(0, head.weight.shape[0]))
    if distribution.cut:
        z.masked_fill_(z < least_kept(z, distribution)[:, None], float("-inf"))
    return torch.log_softmax(z, dim=-1)


def least_kept(z: Tensor, distribution: Distribution) -> Tensor:
    """The smallest logit that top-k and then top-p leave, [tokens, vocabulary] -> [tokens].

    Top-k keeps every logit as large as the k-th. Top-p, on what is left, drops the unlikeliest tokens as long as
    their probabilities together stay within 1 - top_p, and keeps the likeliest always: the rule of vLLM's sampler.
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
