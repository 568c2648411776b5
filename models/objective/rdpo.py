"""Robust DPO: preferences whose labels are flipped at a known rate (paper 311, "Provably Robust DPO").

    loss = [(1 - e) * l(margin) - e * l(-margin)] / (1 - 2 e),   l(m) = -log sigmoid(m), margin as in DPO

Derivation: seen labels are right with chance 1 - e, so E[l~(m)] over flips is (1 - e) l~(m) + e l~(-m), and this is
to be the clean l(m) whichever way the pair lies. The two equations, one for m and one for -m, have the solution above.
The mean over flips is exactly DPO's loss on clean labels; the price is a variance that grows as 1 / (1 - 2 e)^2.

The loss of one pair has no lower bound: far beyond l(m) = 0 it falls by e / (1 - 2 e) a nat of margin, and only the
other pairs hold it. The less data, the more it asks for a small step size.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.formulas.implied_rewards import implied_of_pairs, watch_pairs
from models.loop.rollout import TokenBatch
from models.loop.slots import Objective
from models.parts import part


@part("rdpo")
class RobustDpo(Objective):
    """One loss a pair, unbiased under flips; needs a reference."""

    level = "pair"
    needs_reference = True
    beta: Annotated[float, Field(gt=0)] = 0.1
    """How strongly the reference holds, as in DPO."""
    flip_rate: Annotated[float, Field(ge=0, lt=0.5)] = 0.1
    """Share of pairs whose better answer is said to be the worse (e); zero is DPO."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each pair, [pairs], nats; may be negative.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens].
        """
        implied = implied_of_pairs(log_prob, batch, self.beta)
        margin = implied[:, 0] - implied[:, 1]
        as_seen, flipped = -functional.logsigmoid(margin), -functional.logsigmoid(-margin)
        loss = ((1.0 - self.flip_rate) * as_seen - self.flip_rate * flipped) / (1.0 - 2.0 * self.flip_rate)
        return loss, watch_pairs(implied)
