"""Only what is better than the reference's value is trained on: the filter of Advantage-Leftover Lunch RL (paper 94).

    keep i  where  r_i > V_ref

Answers below what the reference is worth anyway could only train the policy to be worse than it, and in data of mixed
quality they are the noise. With `rewards: reference_value` V_ref(x) is taken off the reward already, and `value` is 0;
without it `value` is one number for all prompts, the same as `baseline` of `advantage: reward`, so that what is left is
weighed by the advantage that it was kept for.
"""

from __future__ import annotations

from torch import Tensor

from models.bounds import Number
from models.loop.rollout import Scored
from models.loop.slots import Select
from models.parts import part


@part("positive_advantage")
class PositiveAdvantage(Select):
    """Keep completions that are worth more than the reference."""

    value: Number = 0.0
    """What a completion must be worth more than, in units of the reward."""
    by: str = "total"
    """The reward component that is compared with it; `total` is the weighted sum."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions with positive advantage, [kept].

        Raises:
            UserError: no reward is called `by`.
        """
        return (scored.component(self.by) > self.value).nonzero().squeeze(-1)
