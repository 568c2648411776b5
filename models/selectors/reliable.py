"""Keep the prompts whose best completion is better than the worst beyond doubt (paper 287, UPO's feedback sampling).

    kept where H(sigmoid(spread / temperature)) <= most_uncertain,   spread = largest less smallest value of the group

H is the entropy in bits of the Bradley-Terry chance that the best beats the worst. The paper estimates uncertainty by
dropout in an estimator model; here it is what the recipe's own rewards, read as log-odds, leave open.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from models.errors import UserError
from models.loop.rollout import Scored
from models.objectives.soft_dpo import uncertainty
from models.parts import part


@part("select", "reliable")
class Reliable:
    """Leave out groups whose preference is in doubt."""

    by: str = "total"
    """The reward component that is read; `total` is the weighted sum."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """What the spread is divided by before it counts as log-odds."""
    most_uncertain: Annotated[float, Field(ge=0, le=1)] = 0.9
    """Largest entropy of a preference that is kept, in bits; 1 keeps all."""

    def __call__(self, scored: Scored) -> Tensor:
        """Indices of the completions of reliable groups, [kept].

        Raises:
            UserError: no reward is called as `by` says.
        """
        if self.by != "total" and self.by not in scored.components:
            raise UserError(f"select.by: no reward is called {self.by}; there are {', '.join(scored.components)}")
        values = scored.rewards if self.by == "total" else scored.components[self.by]
        groups = scored.groups
        count = int(groups.max()) + 1 if len(groups) else 0
        highest = torch.full((count,), -torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amax")
        lowest = torch.full((count,), torch.inf, dtype=values.dtype).scatter_reduce_(0, groups, values, "amin")
        doubt = uncertainty((highest - lowest) / self.temperature)
        return (doubt[groups] <= self.most_uncertain).nonzero().squeeze(-1)
