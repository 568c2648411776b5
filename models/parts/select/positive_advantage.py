"""Only completions above the reference's value are trained on: the filter of Advantage-Leftover Lunch RL (paper 94).

    keep i  where  r_i > V_ref

Answers below the reference's expected reward could only make the policy worse than the reference, and in data of mixed
quality they are noise. With `rewards: reference_value` V_ref(x) is already subtracted from the reward, and `value` is
0. Without it `value` is one number for all prompts, the same as `baseline` of `advantage: reward`, so that the
remaining completions are weighted by the advantage that they were kept for.
"""

from __future__ import annotations

from torch import Tensor

from models.base.bounds import Number
from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


@part("positive_advantage")
class PositiveAdvantage(Select):
    """Completions that are worth more than the reference."""

    value: Number = 0.0
    """Value that the reward of a completion must exceed, in units of the reward."""
    by: str = "total"
    """Reward component that is compared with `value`; `total` is the weighted sum."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions with positive advantage, [kept].

        Raises:
            UserError: no reward is called `by`.
        """
        return (scored.component(self.by) > self.value).nonzero().squeeze(-1)
