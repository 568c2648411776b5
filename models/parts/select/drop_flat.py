"""Drop groups without signal: if all completions of a prompt have the same reward, nothing can be learned.

The spread is compared with a tolerance and not with zero, because floating-point noise makes equal rewards differ. With
a noisy component in the reward (a reward model), judge flatness by the verifier alone: otherwise a group in which every
answer is right would give only the reward model's noise as a signal.

The filter does not change the expected gradient if the advantage is zero in a flat group anyway, as with the group's
own mean as the baseline. With a baseline that does not come from the group, or a loss that depends on more than
differences of reward, flat groups are trained on too, and leaving them out is a bias: use `select: {name: all}` there.

With `refills` other prompts replace those left out, so that every step sees a full batch: dynamic sampling (DAPO,
arXiv 2503.14476).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select
from models.parts.shared.group_statistics import group_spread


@part("drop_flat")
class DropFlat(Select):
    """Groups whose rewards spread."""

    drops_flat = True
    by: str = "total"
    """Label of the reward that must spread: one of the recipe; `total`, the weighted sum; or `overlong`, the penalty of
    `truncated.rule: soft_penalty`. Objectives on pairs need `total`."""
    tolerance: NonNegativeFloat = 1e-4
    """Largest spread (max - min) that counts as zero."""
    refills: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a round may draw further prompts to replace those left out; groups still missing after that stay
    missing."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions of groups with signal, [kept]."""
        spread = group_spread(scored.component(self.by), scored.groups)
        return (spread > self.tolerance).nonzero().squeeze(-1)
