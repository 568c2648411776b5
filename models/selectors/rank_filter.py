"""Policy filtration: keep the completions whose rank can be trusted (PF-PPO, arXiv 2409.06957; paper 176).

A learned reward is least reliable in the middle: the best and the worst completion of a prompt are told apart well,
those between hardly. So the middle is dropped before anything is learned. Which filter suits a reward model is read off

    R^2 = cov(reward, truth)^2 / (var(reward) var(truth))      over the completions that a filter keeps

the share of the truth's variance that a straight line through the reward explains: the higher, the more of the signal
is signal (`r_squared_by_filter`).
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from models.bounds import Positive
from models.loop.rollout import Scored
from models.parts import part

Ends = Literal["best", "worst", "both"]
"""Which end of the ranks stays."""


def kept_by_rank(rewards: Tensor, keep: Ends, count: int) -> Tensor:
    """Places of the completions of one group that a filter keeps, ascending, [kept]; of equals the first ranks higher.

    Args:
        rewards: of one group, [completions].
        keep: which end of the ranks stays.
        count: how many at each end; where both ends meet, every completion is kept once.
    """
    order = rewards.argsort(descending=True, stable=True)
    rank = torch.arange(len(order))
    best, worst = rank < count, rank >= len(order) - count
    return order[{"best": best, "worst": worst, "both": best | worst}[keep]].sort().values


def r_squared(rewards: Tensor, truth: Tensor) -> float:
    """Coefficient of determination of a straight line from `rewards` to `truth`, both [completions], in [0, 1].

    Zero where either does not vary: nothing is explained.
    """
    one, other = rewards.double() - rewards.double().mean(), truth.double() - truth.double().mean()
    spread = float((one**2).sum() * (other**2).sum())
    return float((one * other).sum()) ** 2 / spread if spread else 0.0


def r_squared_by_filter(rewards: Tensor, truth: Tensor, count: int) -> dict[str, float]:
    """R^2 between reward and truth over what each filter keeps, and over `all`, by the filter's name.

    Args:
        rewards: what the reward model says, [groups, completions].
        truth: what the completions are really worth, [groups, completions].
        count: how many a filter keeps at each end.
    """
    table = {"all": r_squared(rewards.flatten(), truth.flatten())}
    for keep in get_args(Ends):
        places = [kept_by_rank(row, keep, count) for row in rewards]
        said = torch.cat([row[kept] for row, kept in zip(rewards, places, strict=True)])
        real = torch.cat([row[kept] for row, kept in zip(truth, places, strict=True)])
        table[keep] = r_squared(said, real)
    return table


@part("select", "rank_filter")
class RankFilter:
    """The best, the worst or both of each group; the middle is dropped."""

    keep: Ends = "both"
    """Which end of the ranks stays."""
    count: Positive = 2
    """Completions at each end."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions to keep, [kept], in their order."""
        groups = scored.groups
        kept = [torch.zeros(0, dtype=torch.long)]
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            members = (groups == number).nonzero().squeeze(-1)
            kept.append(members[kept_by_rank(scored.rewards[members], self.keep, self.count)])
        return torch.cat(kept).sort().values
