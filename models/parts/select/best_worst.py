"""The best and the worst completion of each prompt: a pair for preference losses, made from rewards."""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


@part("best_worst")
class BestWorst(Select):
    """Two completions of each group, the better first; groups whose rewards do not spread are left out."""

    makes_pairs = True
    tolerance: NonNegativeFloat = 1e-4
    """Largest difference of rewards that counts as zero."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of best and worst, [2 * groups with spread]; of equals the first counts."""
        groups = scored.groups
        kept: list[int] = []
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            members = (groups == number).nonzero().squeeze(-1)
            rewards = scored.rewards[members]
            if float(rewards.max() - rewards.min()) > self.tolerance:
                kept += [int(members[rewards.argmax()]), int(members[rewards.argmin()])]
        return torch.tensor(kept, dtype=torch.long)
