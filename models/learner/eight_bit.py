"""AdamW with both running means in 8 bits, a quarter of their memory (Dettmers et al. 2021, arXiv 2110.02861).

It uses torchao: every 256 numbers share a scale, and a number is one of 256 levels that are closer together the smaller
they are. Small tensors (below 4,096 numbers, or not a multiple of 256) stay float32, as in bitsandbytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from models.base.errors import UserError

BLOCK = 256
"""Numbers that share a scale."""
LEAST = 4096
"""Numbers of the smallest tensor whose means are kept in 8 bits."""


def eight_bit_adamw(groups: list[dict[str, Any]], rate: float, betas: tuple[float, float]) -> torch.optim.Optimizer:
    """Build AdamW with 8-bit running means over `groups` of parameters.

    Its step is compiled on a GPU. On a CPU it is not, because a compiler may be missing and takes minutes.

    Raises:
        UserError: torchao is not installed.
    """
    try:
        from torchao.optim import AdamW8bit
    except ImportError:
        raise UserError("optimiser.moments is int8, which needs torchao: pip install 'torchao>=0.18,<0.19'") from None

    class Adam(AdamW8bit):  # type: ignore[misc]
        """See `eight_bit_adamw`."""

        def step(self, closure: Callable[[], float] | None = None) -> Any:
            place = self.param_groups[0]["params"][0].device
            with torch.compiler.set_stance("force_eager" if place.type == "cpu" else "default"):
                return super().step(closure)

    optimiser: torch.optim.Optimizer = Adam(groups, lr=rate, betas=betas, block_size=BLOCK)
    return optimiser


def in_float(optimiser: torch.optim.Optimizer) -> bool:
    """Return whether an optimiser keeps all running means in float32."""
    return isinstance(optimiser, torch.optim.AdamW)


def moment_bytes(weights: Iterable[Tensor]) -> int:
    """Return the memory of both 8-bit running means of `weights` in bytes, with their scales and tables of levels."""
    total = 0
    for weight in weights:
        count = weight.numel()
        small = count < LEAST or count % BLOCK
        total += 2 * (4 * count if small else count + 4 * (count // BLOCK) + 4 * 256)
    return total


def plain_parts(name: str, moment: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the plain tensors of a running mean, for a file: itself, or codes and scale of an 8-bit one."""
    if hasattr(moment, "codes"):
        yield f"{name}.codes", moment.codes
        yield f"{name}.scale", moment.scale
    else:
        yield name, moment


def put_together(parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rebuild the running means of one weight, by name, from their `plain_parts`."""
    moments = {name: part for name, part in parts.items() if not name.endswith((".codes", ".scale"))}
    for name in [name.removesuffix(".codes") for name in parts if name.endswith(".codes")]:
        from torchao.optim.subclass_8bit import OptimState8bit

        codes = parts[f"{name}.codes"]
        # The mean has a sign, the mean of squares has none: they have different levels.
        moment = OptimState8bit.zeros(codes.shape, name == "exp_avg", BLOCK)
        moment.codes.copy_(codes)
        moment.scale.copy_(parts[f"{name}.scale"])
        moments[name] = moment
    return moments
