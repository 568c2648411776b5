"""Log-probs of given tokens and entropies from hidden states, without tokens x vocabulary in memory.

The projection is computed in blocks over tokens and vocabulary. The softmax is accumulated block by block (by the
running maximum and sums of the online softmax, Milakov & Gimelshein 2018), and the backward pass computes each block
again. One number per token is kept for it. The products of states and projection are kept too if they are so few that
this costs less than computing them again; the values are bit-identical.
With z = logits / temperature, p = softmax(z):

    log p(t) = z_t - lse          d log p(t) / dz = onehot(t) - p
    H = lse - sum p z             dH / dz = -p (log p + H)

Sampling that cuts the distribution (top-k, then top-p, as vLLM and transformers do) is the same with p = 0 for the
excluded tokens, so that learner and engine have the same distribution. Each row is then needed whole, so blocks are
over tokens only. The cut is constant for the gradient. The given token is always kept: rounding, or a policy that has
changed since it was drawn, could exclude it, and its log-prob would be minus infinity. The same holds if another model
masks tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.learner.distribution import MODEL_DISTRIBUTION, Distribution, Mask, least_kept
from models.learner.logit_blocks import BLOCK_ELEMENTS, GPU_BLOCK_ELEMENTS, Blocks

KEPT_BYTES = 2**26
"""Largest size of all products of a batch that a CPU keeps for the backward pass: 64 MiB. A GPU keeps none."""


@dataclass(frozen=True)
class Head:
    """Weights and constants of an output projection (the language-model head)."""

    weight: Tensor
    """[vocabulary, hidden]."""
    bias: Tensor | None = None
    """[vocabulary]."""
    softcap: float | None = None
    """Logits are capped to c * tanh(logit / c) (Gemma)."""
    scale: float = 1.0
    """Multiplies the hidden states (Cohere, Granite)."""
    compiled: bool = False
    """Whether torch compiles the arithmetic of a block, for a distribution that is not cut and a head without bias."""


def fused_log_probs(
    hidden: Tensor,
    head: Head,
    targets: Tensor,
    distribution: Distribution = MODEL_DISTRIBUTION,
    *,
    compute: torch.dtype | None = None,
    block_elements: int | None = None,
    mask: Mask | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the log-prob of `targets` and the entropy of each distribution; gradient flows through both.

    Args:
        hidden: states that predict the targets, [tokens, hidden].
        head: the output projection.
        targets: token ids, [tokens].
        distribution: temperature and cut.
        compute: dtype of the matrix products, None for that of `hidden`; all sums are at least float32.
        block_elements: largest tokens x vocabulary of a block; None: chosen for the device.
        mask: further tokens that are left out before the distribution is normalised; None: none.

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
        head.compiled,
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
        compile_blocks: bool,
    ) -> tuple[Tensor, Tensor]:
        """See `fused_log_probs`."""
        wide = torch.promote_types(hidden.dtype, torch.float32)
        states, matrix = hidden.to(compute), weight.to(compute)
        blocks = Blocks(matrix, bias, softcap, distribution, wide, size, mask, compile_blocks)
        count = hidden.shape[0]
        chosen, lse, mean, least = (torch.empty(count, dtype=wide, device=hidden.device) for _ in range(4))
        keep = any(ctx.needs_input_grad) and kept_bytes(count, weight.shape[0], compute, hidden.device.type) > 0
        kept: list[Tensor] | None = [] if keep else None
        for rows in blocks.rows(count):
            chosen[rows], lse[rows], mean[rows], least[rows] = blocks.sums(states[rows], targets[rows], rows, kept)
        entropy = lse - mean
        ctx.save_for_backward(states, weight, bias, targets, lse, entropy, least, *(kept or ()))
        ctx.softcap, ctx.distribution, ctx.compute, ctx.size = softcap, distribution, compute, size
        ctx.dtype, ctx.mask, ctx.compile_blocks = hidden.dtype, mask, compile_blocks
        ctx.set_materialize_grads(False)  # an unused entropy has no gradient; zeros would have to be read
        return chosen - lse, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Compute gradients of hidden, weight and bias; a block's products are computed again if they were not kept."""
        of_log_prob, of_entropy = gradients
        states, weight, bias, targets, lse, entropy, least, *kept = ctx.saved_tensors
        products = iter(kept)
        wide = lse.dtype
        matrix = weight.to(ctx.compute)
        blocks = Blocks(matrix, bias, ctx.softcap, ctx.distribution, wide, ctx.size, ctx.mask, ctx.compile_blocks)
        wanted_hidden, wanted_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        wanted_bias = bias is not None and ctx.needs_input_grad[2]
        if of_log_prob is None:
            of_log_prob = torch.zeros_like(lse)
        d_states = torch.zeros(states.shape, dtype=wide, device=states.device) if wanted_hidden else None
        d_weight = torch.zeros(weight.shape, dtype=wide, device=weight.device) if wanted_weight else None
        d_bias = torch.zeros(weight.shape[0], dtype=wide, device=weight.device) if wanted_bias else None
        for rows in blocks.rows(states.shape[0]):
            for columns in blocks.columns(len(range(*rows.indices(states.shape[0])))):
                place = targets[rows] - columns.start
                entropies = (None, None) if of_entropy is None else (entropy[rows], of_entropy[rows])
                if blocks.compiles:
                    product = next(products) if kept else states[rows] @ matrix[columns].T
                    d_z = blocks.compiled_gradient(product, place, lse[rows], of_log_prob[rows], *entropies)
                else:
                    if kept:
                        z = blocks.bent(next(products), columns, keep=True)
                    else:
                        z = blocks.logits(states[rows], columns)
                    slope = blocks.slope(z)
                    if blocks.cut:
                        blocks.leave_out(z, targets[rows], rows)
                        z.masked_fill_(z < least[rows, None], float("-inf"))
                    d_z = blocks.gradient(z, slope, place, lse[rows], of_log_prob[rows], *entropies)
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
            *(None,) * 7,
        )


def kept_bytes(tokens: int, vocabulary: int, compute: torch.dtype, device: str) -> int:
    """Return the memory of the products kept for the backward pass, in bytes; zero on a GPU or above `KEPT_BYTES`.

    Args:
        tokens: number of tokens whose log-probs are computed together.
        vocabulary: number of entries of the whole vocabulary.
        compute: dtype of the products.
        device: cpu or cuda.
    """
    every = tokens * vocabulary * compute.itemsize
    return every if device == "cpu" and every <= KEPT_BYTES else 0


def next_token_log_probs(hidden: Tensor, head: Head, distribution: Distribution) -> Tensor:
    """Compute all tokens' log-probs after each state, [rows, hidden] -> [rows, vocabulary], nats, float32 or wider.

    For drawing the next token of a few rows; `fused_log_probs` gives the same numbers for the tokens that were drawn.
    """
    wide = torch.promote_types(hidden.dtype, torch.float32)
    states = hidden if head.scale == 1.0 else hidden * head.scale
    whole = Blocks(head.weight, head.bias, head.softcap, distribution, wide, 0)
    z = whole.logits(states, slice(0, head.weight.shape[0]))
    if distribution.cut:
        z.masked_fill_(z < least_kept(z, distribution)[:, None], float("-inf"))
    return torch.log_softmax(z, dim=-1)
