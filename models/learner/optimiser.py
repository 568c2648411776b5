"""AdamW with a warm-up and an optional decay, as typed settings and one function that takes a step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.ranks import whole
from models.learner.eight_bit import eight_bit_adamw

Decay = Annotated[float, Field(ge=0, lt=1)]


class NotFinite(UserError):
    """Error for a step whose loss or gradient is not finite. Weights are unchanged, gradients are cleared."""


@dataclass(frozen=True, kw_only=True)
class OptimiserSettings:
    """Settings of the optimiser. Set under `optimiser:` of a recipe's sections."""

    learning_rate: NonNegativeFloat = 1e-4
    """Peak step size of AdamW."""
    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices, times the step size; vectors (norms, biases) do not decay."""
    betas: tuple[Decay, Decay] = (0.9, 0.99)
    """Decay of the gradients' running mean and of their squares'."""
    clip_norm: PositiveFloat = 1.0
    """Largest global L2 norm of the gradients; larger ones are scaled down to it."""
    warmup_steps: NonNegativeInt = 10
    """Steps over which the step size rises linearly from zero; the last of them has its peak."""
    decay: Literal["none", "linear", "cosine"] = "none"
    """How the step size falls from its peak, when the warm-up ends, to nearly zero at the last step."""
    moments: Literal["float32", "int8"] = "float32"
    """Type of AdamW's two running means; int8: one byte per number, by torchao (the extra `eight-bit`)."""


def build_optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
    """Build AdamW over the trainable parameters; weight decay is for matrices, not for vectors (norms, biases).

    Raises:
        UserError: its moments are to be int8, and torchao is not installed.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if settings.moments == "int8":
        return eight_bit_adamw(groups, settings.learning_rate, settings.betas)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)


def learning_rate_at(step: int, total: int, settings: OptimiserSettings) -> float:
    """Return the learning rate of update `step` (from 0) of `total`; it peaks at the end of the warm-up."""
    warm = min(1.0, (step + 1) / max(1, settings.warmup_steps))
    peak = max(0, settings.warmup_steps - 1)
    progress = min(1.0, max(0, step - peak) / max(1, total - peak))
    if settings.decay == "linear":
        warm *= 1.0 - progress
    elif settings.decay == "cosine":
        warm *= 0.5 * (1.0 + math.cos(math.pi * progress))
    return settings.learning_rate * warm


def take_step(
    optimiser: torch.optim.Optimizer,
    parameters: Iterable[nn.Parameter],
    step: int,
    total: int,
    settings: OptimiserSettings,
    section: str = "optimiser",
    loss: Tensor | None = None,
) -> float:
    """Clip the gradients, update the weights and clear the gradients. Returns the norm before clipping.

    It waits for the device once, for the norm and the loss together.

    Args:
        section: key of the settings in the recipe.
        loss: loss of the step, a scalar, which must be finite too; None: not checked.

    Raises:
        NotFinite: the loss or a gradient is not finite; the weights have not moved.
    """
    clipped = whole(nn.utils.clip_grad_norm_(list(parameters), settings.clip_norm)).double()
    norm, value = torch.stack([clipped, clipped if loss is None else loss.detach().to(clipped)]).tolist()
    if not math.isfinite(norm) or not math.isfinite(value):
        optimiser.zero_grad(set_to_none=True)
        what = f"the gradient norm is {norm}" if math.isfinite(value) or loss is None else "the loss is not finite"
        raise NotFinite(f"update {step}: {what}; lower {section}.learning_rate or check the data")
    for group in optimiser.param_groups:
        rate = learning_rate_at(step, total, settings)
        group["lr"] = rate if isinstance(group["lr"], float) else group["lr"].fill_(rate)  # a tensor where compiled
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return float(norm)
