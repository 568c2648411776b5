"""Policy filtration: keep the completions whose rank can be trusted (PF-PPO, arXiv 2409.06957; paper 176).

A learned reward is least reliable in the middle: the best and the worst completion of a prompt are distinguished well,
those between hardly. So the middle is dropped before training, or thinned:

    best          the count best                                        (best of N)
    worst         the count worst
    both          the count best and the count worst                    (best and worst)
    best_random   the count best, and as many random others             (best and random)

The random choice is seeded with a hash of the group's completions: the same group is always thinned in the same way,
independent of the round, the order of the prompts and the process. Among the completions that are not best each has the
same chance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.method.registry import part
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.select import Select

Filter = Literal["best", "worst", "both", "best_random"]
"""Completions of a group that are kept."""


def seed_of(group: Sequence[Rollout]) -> int:
    """Compute a seed from the prompt and its completions, [0, 2^32)."""
    content = repr([(rollout.problem.id, rollout.completion) for rollout in group])
    return int.from_bytes(hashlib.sha256(content.encode()).digest()[:4], "big")


def kept_by_rank(rewards: Tensor, keep: Filter, count: int, seed: int = 0) -> Tensor:
    """Return indices of the completions of one group that a filter keeps, ascending, [kept].

    Of equal completions the first ranks higher.

    Args:
        rewards: rewards of one group, [completions].
        keep: which of them are kept.
        count: number at each end, or of the random ones; where both ends overlap, every completion is kept once.
        seed: seed of the random choice.
    """
    order = rewards.argsort(descending=True, stable=True)
    if keep == "best_random":
        rest = order[count:]
        chance = torch.Generator().manual_seed(seed)
        drawn = rest[torch.randperm(len(rest), generator=chance)[:count]]
        return torch.cat([order[:count], drawn]).sort().values
    rank = torch.arange(len(order))
    best, worst = rank < count, rank >= len(order) - count
    return order[{"best": best, "worst": worst, "both": best | worst}[keep]].sort().values


@part("rank_filter")
class RankFilter(Select):
    """The best, the worst, both, or the best and some random others of each group; the rest is dropped."""

    keep: Filter = "both"
    """Completions that are kept."""
    count: Positive = 2
    """Completions at each end, or random ones."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions to keep, [kept], in their order."""
        groups = scored.groups
        kept = [torch.zeros(0, dtype=torch.long)]
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            members = (groups == number).nonzero().squeeze(-1)
            seed = seed_of([scored.rollouts[index] for index in members.tolist()])
            kept.append(members[kept_by_rank(scored.rewards[members], self.keep, self.count, seed)])
        return torch.cat(kept).sort().values
