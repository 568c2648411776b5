"""The clip of PPO: a ratio that has moved far enough in the direction of its advantage has no gradient.

    surrogate = min(rho * A, clip(rho, 1 - low, 1 + high) * A)        PPO (Schulman et al. 2017, arXiv 1707.06347)
                max(that, c * A) where A < 0                          dual clip (Ye et al. 2020, arXiv 1912.09729)

For A < 0 the first form has no upper bound: one token whose ratio has become large decides the step. The second clip
leaves it out from rho = c on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.parts.shared.importance import ImportanceSettings


def clip(ratio: Tensor, low: float | None, high: float | None) -> Tensor:
    """Clip `ratio` to between 1 - low and 1 + high, if these are given, in its shape; no gradient outside."""
    return ratio.clamp(0.0 if low is None else 1.0 - low, None if high is None else 1.0 + high)


@dataclass(frozen=True, kw_only=True)
class ClipSettings(ImportanceSettings):
    """Settings of policy gradients that clip their ratio. Set under `objective:`."""

    clip_low: Share | None = 0.2
    """Largest fall of the ratio below one before it is clipped, if the advantage is negative; null: no limit."""
    clip_high: NonNegativeFloat | None = 0.2
    """Largest rise of the ratio above one before it is clipped, if the advantage is positive; null: no limit."""
    dual_clip: Annotated[float, Field(gt=1)] | None = None
    """Ratio above which a token of negative advantage has no gradient (c); null: no such limit."""

    def __post_init__(self) -> None:
        if self.dual_clip is not None and self.clip_high is not None and self.dual_clip <= 1.0 + self.clip_high:
            raise ValueError(f"dual_clip is {self.dual_clip}, not above 1 + clip_high, {1.0 + self.clip_high}")
        super().__post_init__()


def dropped(ratio: Tensor, advantage: Tensor, settings: ClipSettings) -> Tensor:
    """Return which entries PPO's clip leaves out of the gradient, in the shape of `ratio`, bool."""
    return ratio * advantage > clip(ratio, settings.clip_low, settings.clip_high) * advantage


def clipped(ratio: Tensor, advantage: Tensor, settings: ClipSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the clipped surrogate, and metrics without gradient; all in the shape of `ratio`.

    Args:
        ratio: pi / pi_old, of tokens or of completions; gradient flows.
        advantage: advantage, in the same shape.
        settings: both clips.
    """
    bounded = clip(ratio, settings.clip_low, settings.clip_high)
    surrogate = torch.minimum(ratio * advantage, bounded * advantage)
    watch = {"clipped_share": dropped(ratio, advantage, settings).to(ratio)}
    if settings.dual_clip is not None:
        beyond = (advantage < 0) & (ratio > settings.dual_clip)
        surrogate = torch.where(beyond, settings.dual_clip * advantage, surrogate)
        watch["dual_clipped_share"] = beyond.to(ratio)
    return surrogate, {name: value.detach() for name, value in watch.items()}
