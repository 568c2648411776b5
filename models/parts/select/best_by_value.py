"""The candidate of the highest value in each group is trained on: a value function chooses among proposals.

    keep the a of highest Q(h, a) at each state h, where  Q(h, a) - mean over the candidates of Q(h, .)  >  least_gain

Imitating the best of N by value is a policy improvement step that needs no ratio and no baseline (Digi-Q; paper 123). A
choice among proposals of several experts is a dialogue manager whose actions are utterances (paper 45).
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select
from models.parts.shared.group_statistics import group_mean


@part("best_by_value")
class BestByValue(Select):
    """The best completion of each group by one reward, if it exceeds the group's mean by enough."""

    by: str = "action_value"
    """Reward that is used as the value; `total` is the weighted sum."""
    least_gain: NonNegativeFloat = 0.0
    """Gain over the mean of its group that the best completion must exceed."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the best of each group among those that carry loss, [kept]; of equals the first counts.

        Raises:
            UserError: no reward is called `by`.
        """
        able = scored.trained
        among = scored.take(able)
        values, groups = among.component(self.by), among.groups
        gain = values - group_mean(values, groups)
        kept = []
        for number in range(int(groups.max()) + 1 if len(groups) else 0):
            members = (groups == number).nonzero().squeeze(-1)
            best = members[values[members].argmax()]
            if len(members) > 1 and float(gain[best]) > self.least_gain:
                kept.append(able[best])
        return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.long)
