"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290; paper 84).

    loss = -log sigmoid(margin),   margin = beta * [log pi/ref (better) - log pi/ref (worse)]

The reward model that the policy itself implies, r = beta log pi/ref, is fitted to the preference of each pair.
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


@part("dpo")
class Dpo(Objective):
    """One loss a pair; needs a reference."""

    level = "pair"
    needs_reference = True
    beta: Annotated[float, Field(gt=0)] = 0.1
    """How strongly the reference holds: the KL penalty of the reward maximisation that this solves."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each pair, [pairs], nats.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens].
        """
        implied = implied_of_pairs(log_prob, batch, self.beta)
        margin = implied[:, 0] - implied[:, 1]
        return -functional.logsigmoid(margin), watch_pairs(implied)
