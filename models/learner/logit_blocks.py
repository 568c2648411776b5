"""Logits of a batch in blocks over tokens and vocabulary, and the sums that a softmax over them needs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.learner.attention.block_attention import LOG2_E
from models.learner.compiled_blocks import block_gradient, block_sums, compiled
from models.learner.distribution import Distribution, Mask, least_kept

BLOCK_TOKENS = 256
BLOCK_ELEMENTS = 2**19
"""Largest tokens x vocabulary of one block: 2 MiB in float32, which stays in a CPU's cache."""
GPU_BLOCK_TOKENS = 4096
GPU_BLOCK_ELEMENTS = 2**28
"""The same on a GPU, where a block of 1 GiB keeps every multiprocessor busy."""


@dataclass(frozen=True)
class Blocks:
    """Settings and arithmetic of the logits of a batch, computed in blocks; z = logits / temperature."""

    matrix: Tensor
    bias: Tensor | None
    softcap: float | None
    distribution: Distribution
    wide: torch.dtype
    size: int
    mask: Mask | None = None
    compile_blocks: bool = False

    @property
    def compiles(self) -> bool:
        """Whether torch compiles the arithmetic of a block."""
        return self.compile_blocks and not self.cut and self.bias is None

    @property
    def cut(self) -> bool:
        """Whether top-p, top-k or a mask excludes some tokens."""
        return self.distribution.cut or self.mask is not None

    def rows(self, tokens: int) -> list[slice]:
        """Return the blocks of `tokens` tokens, as slices."""
        step = _row_step(self.matrix.shape[0], self.matrix.device.type, self.size, cut=self.cut)
        return [slice(start, min(tokens, start + step)) for start in range(0, tokens, step)]

    def columns(self, tokens: int) -> list[slice]:
        """Return the blocks of the vocabulary for a block of `tokens` tokens, as slices."""
        vocabulary = self.matrix.shape[0]
        step = vocabulary if self.cut else _column_step(tokens, self.size)
        return [slice(start, min(vocabulary, start + step)) for start in range(0, vocabulary, step)]

    def logits(self, states: Tensor, columns: slice, kept: list[Tensor] | None = None) -> Tensor:
        """Compute z of a block, [tokens of it, vocabulary of it], in the dtype `wide`.

        Args:
            kept: receives the product of states and projection; None: it is not kept.
        """
        product = states @ self.matrix[columns].T
        if kept is not None:
            kept.append(product)
        return self.bent(product, columns, keep=kept is not None)

    def bent(self, product: Tensor, columns: slice, *, keep: bool) -> Tensor:
        """Apply bias, soft cap and temperature to a block's product of states and projection: z, in the dtype `wide`.

        Args:
            product: unchanged if `keep`, else it may be overwritten by z.
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
        """Compute the derivative of the soft-capped logits of a block by the plain logits; None without a soft cap."""
        if self.softcap is None:
            return None
        return 1.0 - (z * self.distribution.temperature / self.softcap).square()

    def leave_out(self, z: Tensor, targets: Tensor, rows: slice) -> None:
        """Set the logits of masked tokens to minus infinity, in place, in whole rows; a target is never masked."""
        if self.mask is not None:
            outside = self.mask.outside(rows).scatter_(1, targets[:, None], False)
            z.masked_fill_(outside, float("-inf"))

    def compiled_gradient(self, *of: Tensor | None) -> Tensor:
        """Call the compiled `models.learner.compiled_blocks.block_gradient` with its tensors, in their order."""
        made: Tensor = compiled(block_gradient)(*of, self.softcap, self.distribution.temperature)
        return made

    def gradient(
        self,
        z: Tensor,
        slope: Tensor | None,
        place: Tensor,
        lse: Tensor,
        of_log_prob: Tensor,
        entropy: Tensor | None,
        of_entropy: Tensor | None,
    ) -> Tensor:
        """Compute the gradient by a block's product of states and projection, in the dtype `wide`.

        Args:
            z: logits of the block, minus infinity for excluded tokens; it is overwritten.
            slope: see `slope`.
            place, lse, of_log_prob, entropy, of_entropy: see `models.learner.compiled_blocks.block_gradient`.
        """
        log_p = z.sub_(lse[:, None])
        if of_entropy is not None and entropy is not None:
            p = exp_in_place(log_p.clone())
            # p log p is zero where p is: a cut token's minus infinity must not be multiplied
            inner = torch.where(p > 0, log_p, 0.0) + entropy[:, None]
            d_z = -p * (of_log_prob[:, None] + of_entropy[:, None] * inner)
        else:
            d_z = exp_in_place(log_p).mul_(-of_log_prob[:, None])
        here = (place >= 0) & (place < z.shape[1])
        d_z.scatter_add_(1, place.clamp(0, z.shape[1] - 1)[:, None], (of_log_prob * here)[:, None].to(d_z.dtype))
        if slope is not None:
            d_z *= slope
        if self.distribution.temperature != 1.0:
            d_z /= self.distribution.temperature
        return d_z

    def sums(
        self, states: Tensor, targets: Tensor, rows: slice, kept: list[Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute z of the target, log-sum-exp of z, mean of z under p, and the smallest z that is kept, [tokens] each.

        Args:
            states: that predict the targets, [tokens of the block, hidden].
            targets: token ids, [tokens of the block].
            rows: places of these tokens among all of them.
            kept: receives the products of states and projection, block of the vocabulary after block; None: not kept.
        """
        count = states.shape[0]
        largest = torch.full((count,), float("-inf"), dtype=self.wide, device=states.device)
        total, weighted, chosen = (torch.zeros(count, dtype=self.wide, device=states.device) for _ in range(3))
        least = largest
        for columns in self.columns(count):
            place = targets - columns.start
            if self.compiles:
                product = states @ self.matrix[columns].T
                if kept is not None:
                    kept.append(product)
                of_target, most, sum_of_e, mean = compiled(block_sums)(
                    product, place, self.softcap, self.distribution.temperature, self.wide
                )
                bigger = torch.maximum(largest, most)
                before, here = torch.exp(largest - bigger), torch.exp(most - bigger)
                chosen = chosen + of_target
                total = total * before + sum_of_e * here
                weighted = weighted * before + (mean + most * sum_of_e) * here
                largest = bigger
                continue
            z = self.logits(states, columns, kept)
            here = (place >= 0) & (place < z.shape[1])
            chosen = torch.where(here, z.gather(1, place.clamp(0, z.shape[1] - 1)[:, None]).squeeze(1), chosen)
            if self.cut:
                self.leave_out(z, targets, rows)
                least = torch.minimum(least_kept(z, self.distribution), chosen)
                z.masked_fill_(z < least[:, None], float("-inf"))
            bigger = torch.maximum(largest, z.amax(1))
            shrink = torch.exp(largest - bigger)
            below = z.sub_(bigger[:, None])
            e = exp_in_place(below.clone())
            sum_of_e = e.sum(1)
            if self.cut:
                below.masked_fill_(e == 0, 0.0)
            total = total * shrink + sum_of_e
            weighted = weighted * shrink + torch.linalg.vecdot(e, below) + bigger * sum_of_e
            largest = bigger
        return chosen, largest + torch.log(total), weighted / total, least


def exp_in_place(values: Tensor) -> Tensor:
    """Compute exp(values) in place; on a CPU by the exponential to base 2, which torch has vectorised everywhere."""
    return values.mul_(LOG2_E).exp2_() if values.device.type == "cpu" else values.exp_()


def block_shape(tokens: int, vocabulary: int, device: str, *, cut: bool) -> tuple[int, int]:
    """Return the shape of the largest block of logits that is in memory at once: tokens and entries of the vocabulary.

    Args:
        tokens: number of tokens whose log-probs are computed together.
        vocabulary: number of entries of the whole vocabulary.
        device: cpu or cuda.
        cut: whether some tokens are excluded, so that whole rows are needed.
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
