"""Best of N: the best completions of each prompt are trained on, and optionally the worst as well.

A completion that is best of N under a reward of 0 or 1 is a draw from the policy given that it is right (RAFT, Dong et
al. 2023, arXiv 2304.06767; paper 217).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt
from torch import Tensor

from models.base.bounds import Number, Positive
from models.method.problem import Origin
from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


@part("best_of_n")
class BestOfN(Select):
    """The best of each group, followed by its worst, as far as these have a lower reward than all of the best."""

    best: Positive = 1
    """Completions per prompt that count as its best; of equals the first."""
    worst: NonNegativeInt = 0
    """Most completions per prompt that are kept as its worst."""
    least: Number | None = None
    """Reward below which a completion is never a best one; a prompt without a best one is left out; None: any
    reward."""
    origin: Origin | None = None
    """Origin that a best or worst completion must have; null: any origin."""
    others: Literal["dropped", "kept"] = "dropped"
    """Treatment of the completions of another origin: dropped or kept. Kept ones come before the best in the result,
    whether there is a best or not."""
    tolerance: NonNegativeFloat = 1e-4
    """Largest difference of rewards that counts as zero."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the best, then of the worst of each group, from the best down, [kept]."""
        groups, origins = scored.groups, [rollout.source.origin for rollout in scored.rollouts]
        kept: list[int] = []
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            whole = (groups == number).nonzero().squeeze(-1)
            able = torch.tensor([self.origin in (None, origins[index]) for index in whole.tolist()])
            members = whole[able]
            kept += whole[~able].tolist() if self.others == "kept" else []
            ranked = members[scored.rewards[members].argsort(descending=True, stable=True)].tolist()
            rewards = scored.rewards.tolist()
            best = [i for i in ranked[: self.best] if self.least is None or rewards[i] >= self.least]
            if not best:
                continue
            below = [i for i in ranked if rewards[i] < rewards[best[-1]] - self.tolerance]
            kept += best + (below[-self.worst :] if self.worst else [])
        return torch.tensor(kept, dtype=torch.long)
