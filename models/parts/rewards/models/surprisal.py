"""Moderate surprise of a text under the reference, less its incoherence: curiosity as a value (COS(M+O)S, paper 134).

    s_t = -log pi0(token)                                     surprise of a token, nats
    curiosity = exp(-(mean s_t - moderate)^2 / (2 width^2))   1 at the moderate surprise, 0 far below and far above
    incoherence = share of tokens with s_t > incoherent
    value = curiosity - penalty * incoherence

What the reference expects is dull, and what it would never write makes no sense. The best text is between them. The
mean alone does not show incoherence: a dull text with a few impossible tokens has a moderate mean. As a reward of steps
it values each step after the steps before it (rollouts `tree_search`, `step_rewards`).

Derived from the paper's abstract. There a second model judges the incoherence of a plot; here it is read from the
reference's own tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.base.errors import UserError
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.parts.shared.written_tokens import written_rows


def curiosity(surprise: Tensor, moderate: float, width: float) -> Tensor:
    """Compute the value of a mean surprise, any shape, in [0, 1]; it is 1 at `moderate`, all in nats a token."""
    return torch.exp(-0.5 * ((surprise - moderate) / width) ** 2)


@part("surprisal")
class Surprisal(Reward):
    """Value of a moderate surprise under the reference, less the share of impossible tokens; needs a reference."""

    reads_learner = True
    needs_reference = True
    moderate: NonNegativeFloat = 1.0
    """Mean surprise that is worth most, nats a token."""
    width: PositiveFloat = 0.5
    """Distance from it at which the value has fallen to 61 %, nats a token."""
    incoherent: PositiveFloat = 6.0
    """Surprise above which a token counts as incoherent, nats."""
    penalty: NonNegativeFloat = 1.0
    """Value that is lost if all tokens are incoherent."""

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return values in [-penalty, 1], [completions].

        Raises:
            UserError: the recipe has no reference.
        """
        rows = resources.readings.reference(rollouts)
        if rows is None:
            raise UserError(f"reward {self.label} reads the reference, but the recipe has none: set reference.name")
        surprises = [-row.detach().double().cpu() for row in written_rows(rows, rollouts)]
        means = torch.stack([row.mean() for row in surprises])
        shares = torch.stack([(row > self.incoherent).double().mean() for row in surprises])
        return (curiosity(means, self.moderate, self.width) - self.penalty * shares).float()
