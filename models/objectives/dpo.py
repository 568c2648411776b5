"""Direct preference optimisation (Rafailov et al. 2023, arXiv 2305.18290; paper 84).

    loss = -log sigmoid(margin),   margin = beta * [log pi/ref (better) - log pi/ref (worse)]

The reward model that the policy itself implies, r = beta log pi/ref, is fitted to the preference of each pair.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor
from torch.nn import functional

from models.loop.rollout import TokenBatch
from models.parts import part


def implied_rewards(log_prob: Tensor, batch: TokenBatch, beta: float) -> Tensor:
    """The reward beta log pi/ref that the policy implies for the better and the worse completion, [pairs, 2], nats.

    Args:
        log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
        batch: the reference's log-probs, [tokens].
        beta: how strongly the reference holds.
    """
    assert batch.reference is not None, "the recipe check makes sure that there is a reference"
    return beta * (log_prob - batch.by_pair(batch.reference))


def watch_pairs(implied: Tensor) -> dict[str, Tensor]:
    """What is worth watching of implied rewards [pairs, 2]: one value a pair, no gradient."""
    better, worse = implied.detach().unbind(-1)
    return {
        "pair_accuracy": (better > worse).to(implied),
        "pair_margin": better - worse,
        "implied_better": better,
        "implied_worse": worse,
    }


@part("objective", "dpo")
class Dpo:
    """One loss a pair; needs a reference."""

    level: ClassVar[Literal["pair"]] = "pair"
    needs_reference: ClassVar[bool] = True
    beta: float = 0.1
    """How strongly the reference holds: the KL penalty of the reward maximisation that this solves."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each pair, [pairs], nats.

        Args:
            log_prob: log pi of the better and the worse completion, [pairs, 2], nats; gradient flows.
            batch: the reference's log-probs, [tokens].
        """
        implied = implied_rewards(log_prob, batch, self.beta)
        margin = implied[:, 0] - implied[:, 1]
        return -functional.logsigmoid(margin), watch_pairs(implied)
