"""Oversample, then keep the completions of each prompt whose rewards differ most.

Sampling many completions of a prompt at a high temperature finds rare successes and rare failures (T1,
arXiv 2501.11651; paper 89), but a step on all of them is expensive and mostly redundant. Of the k out of G completions
that are trained on, those of the greatest variance of reward are kept:

    the i best and the k - i worst, with the i in 0..k whose rewards have the greatest variance

No other choice of k spreads more: as a function of any one reward the variance is convex, so an outermost one is never
worse. For rewards of right and wrong this keeps as many right ones as wrong ones, as far as available.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.base.bounds import Positive
from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


def widest(values: Tensor, keep: int) -> Tensor:
    """Return indices of the `keep` of `values` [completions] of greatest variance, ascending, [min(keep, completions)].

    Of equals the first counts, and of choices of equal variance the one with more of the best.
    """
    order = values.argsort(descending=True, stable=True)
    count = min(keep, len(order))
    ends = [torch.cat([order[:best], order[len(order) - (count - best) :]]) for best in range(count, -1, -1)]
    spread = [float(values[chosen].double().var(unbiased=False)) for chosen in ends]
    return ends[spread.index(max(spread))].sort().values


@part("most_spread")
class MostSpread(Select):
    """Some completions of each group, as different in reward as possible."""

    keep: Positive = 8
    """Completions per prompt that are trained on (k); groups of at most this size stay whole."""
    by: str = "total"
    """Reward component that must spread; `total` is the weighted sum."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions to keep, [kept], in their order."""
        values = scored.component(self.by)
        groups = scored.groups
        kept = [torch.zeros(0, dtype=torch.long)]
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            members = (groups == number).nonzero().squeeze(-1)
            kept.append(members[widest(values[members], self.keep)])
        return torch.cat(kept).sort().values
