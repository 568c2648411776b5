"""Drop groups without signal: where all completions of a prompt are worth the same, nothing can be learned.

The spread is compared with a tolerance and not with zero, because floating-point noise makes equal rewards
differ. With a noisy component in the reward (a reward model), judge flatness by the verifier alone: otherwise
a group in which everything is right would give no signal but the reward model's noise.

It changes no expected gradient where the advantage is zero in a flat group anyway, as against the group's own mean.
Under a baseline that does not come from the group, or a loss that looks at more than differences of reward, flat
groups are trained on too, and to leave them out is a bias: `select: {name: all}` there.

With `refills` other prompts take the place of those left out, so that every step sees a full batch: dynamic sampling
(DAPO, arXiv 2503.14476).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from models.formulas.group_statistics import group_spread
from models.loop.rollout import Scored
from models.loop.slots import Select
from models.parts import part


@part("drop_flat")
class DropFlat(Select):
    """Keep the groups whose rewards spread."""

    drops_flat = True
    by: str = "total"
    """The reward component that must spread; `total` is the weighted sum."""
    tolerance: NonNegativeFloat = 1e-4
    """Largest spread (max - min) that still counts as none."""
    refills: Annotated[int, Field(ge=0, le=1000)] = 0
    """How often a round may draw further prompts in place of those left out; what is missing then stays missing."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions of groups with signal, [kept]."""
        spread = group_spread(scored.component(self.by), scored.groups)
        return (spread > self.tolerance).nonzero().squeeze(-1)
