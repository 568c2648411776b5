"""Right completions weigh one, wrong ones together as much as the right ones: failure as cloning would reward it.

    A_i = 1                                   where r_i is no less than the mean of its group: right
    A_i = -strength * (right / wrong)         elsewhere: wrong; right and wrong count the completions of the group

r is the verdict, of two values (`by: exact_answer`, or nothing else in `rewards`). With anything beside it, "no less
than the mean" says little about right and wrong: right answers that are less liked would be pushed away.

Source: OREAL (paper 280), which clones the best of N and reshapes the reward of the others until both gradients agree;
derived here. Let p be the chance to be right, E+ and E- the means over right and over wrong completions. As
grad p = sum over the right of grad pi,

    E+[grad log pi] = grad log p          cloning climbs the log of the chance to be right
    E-[grad log pi] = grad log (1 - p)
    E+ - E-         = grad log(p / (1 - p)) = grad p / (p (1 - p))

So a wrong completion's weight that agrees with cloning is the one by which all wrong ones weigh as much as all right
ones. However many of each are chosen, as long as chance chooses among the right and among the wrong, the expectation
is this gradient. In a whole group it is -p / (1 - p) for an observed p, the policy gradient (r - p) divided by 1 - p.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from models.loop.rollout import Scored, group_mean
from models.loop.slots import World
from models.parts import part


@part("advantage", "balanced")
class Balanced:
    """One for what is no worse than its group's mean; what is worse takes as much away. Alone, or flat: one."""

    needs_group: ClassVar[bool] = False
    by: str = "total"
    """The reward component that tells right from wrong; `total` is the weighted sum."""
    strength: Annotated[float, Field(ge=0)] = 1.0
    """What the wrong completions of a prompt weigh together for each right one; 0 clones the right ones alone."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-4
    """Reward by which a completion may lie below the mean and still be no worse."""

    def __call__(self, world: World, scored: Scored) -> Tensor:
        """Advantages, [completions]; with strength one the sum of every group that spreads is zero."""
        groups, verdict = scored.groups, scored.component(self.by, "advantage.by")
        right = (verdict >= group_mean(verdict, groups) - self.tolerance).to(verdict)
        share = group_mean(right, groups)
        balance = -self.strength * share / (1.0 - share).clamp(min=torch.finfo(share.dtype).tiny)
        return torch.where(right > 0, torch.ones_like(share), balance)
