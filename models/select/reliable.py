"""Keep the prompts whose best completion is better than the worst beyond doubt (paper 287, UPO's feedback sampling).

    kept where H(sigmoid(spread / temperature)) <= most_uncertain,   spread = largest less smallest value of the group

H is the entropy in bits of the Bradley-Terry chance that the best beats the worst. The paper estimates uncertainty by
dropout in an estimator model; here it is what the recipe's own rewards, read as log-odds, leave open.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.bounds import Share
from models.formulas.group_statistics import group_spread
from models.formulas.soft_label import uncertainty
from models.loop.rollout import Scored
from models.loop.slots import Select
from models.parts import part


@part("reliable")
class Reliable(Select):
    """Leave out groups whose preference is in doubt."""

    by: str = "total"
    """The reward component that is read; `total` is the weighted sum."""
    temperature: PositiveFloat = 1.0
    """What the spread is divided by before it counts as log-odds."""
    most_uncertain: Share = 0.9
    """Largest entropy of a preference that is kept, in bits; 1 keeps all."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions of reliable groups, [kept].

        Raises:
            UserError: no reward is called as `by` says.
        """
        doubt = uncertainty(group_spread(scored.component(self.by), scored.groups) / self.temperature)
        return (doubt <= self.most_uncertain).nonzero().squeeze(-1)
