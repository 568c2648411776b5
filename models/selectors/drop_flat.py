"""Drop groups without signal: where all completions of a prompt are worth the same, nothing can be learned.

The spread is compared with a tolerance and not with zero, because floating-point noise makes equal rewards
differ. With a noisy component in the reward (a reward model), judge flatness by the verifier alone: otherwise
a group in which everything is right would teach nothing but the reward model's noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.errors import UserError
from models.loop.rollout import Scored
from models.parts import part


@part("select", "drop_flat")
class DropFlat:
    """Keep the groups whose rewards spread."""

    by: str = "total"
    """The reward component that must spread; `total` is the weighted sum."""
    tolerance: float = 1e-4
    """Largest spread (max - min) that still counts as none."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions of groups with signal, [kept]."""
        if self.by != "total" and self.by not in scored.components:
            raise UserError(f"select.by: no reward is called {self.by}; there are {', '.join(scored.components)}")
        values = scored.rewards if self.by == "total" else scored.components[self.by]
        groups = scored.groups
        count = int(groups.max()) + 1 if len(groups) else 0
        highest = torch.full((count,), -torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amax")
        lowest = torch.full((count,), torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amin")
        return ((highest - lowest)[groups] > self.tolerance).nonzero().squeeze(-1)
