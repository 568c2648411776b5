"""Keep the prompts whose best completion is reliably better than the worst (paper 287, UPO's feedback sampling).

    kept where H(sigmoid(spread / temperature)) <= most_uncertain,   spread = largest less smallest value of the group

H is the entropy in bits of the Bradley-Terry probability that the best beats the worst. The paper estimates uncertainty
by dropout in an estimator model; here it is the uncertainty of the recipe's own rewards, read as log-odds.
"""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from models.base.bounds import Share
from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select
from models.parts.shared.group_statistics import group_spread
from models.parts.shared.soft_label import uncertainty


@part("reliable")
class Reliable(Select):
    """Groups whose preference is certain enough."""

    by: str = "total"
    """Reward component that is read; `total` is the weighted sum."""
    temperature: PositiveFloat = 1.0
    """Divisor of the group's spread; the quotient is the log-odds of the preference."""
    most_uncertain: Share = 0.9
    """Largest entropy of a preference that is kept, in bits; 1 keeps all."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return indices of the completions of reliable groups, [kept].

        Raises:
            UserError: no reward is called `by`.
        """
        doubt = uncertainty(group_spread(scored.component(self.by), scored.groups) / self.temperature)
        return (doubt <= self.most_uncertain).nonzero().squeeze(-1)
