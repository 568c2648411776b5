"""What all policy gradients by token have in common: the engine's correction around the surrogate, the KL beside it.

    loss = -w * surrogate + beta * KL

w is the weight of `models.formulas.importance`, the KL that of `models.formulas.kl_term`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from models.formulas.importance import Corrected
from models.formulas.kl_term import KlInLoss
from models.loop.rollout import TokenBatch


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(KlInLoss, Corrected):
    """A surrogate for each token, corrected for who sampled it, with a KL to the reference."""

    level = "token"

    @abstractmethod
    def _surrogate(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """What is to rise at each token, [tokens], gradient flows, and what is worth watching, [tokens] each."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the log-probs under the engine, the old policy and the reference, [tokens] each.
        """
        surrogate, watch = self._surrogate(log_prob, batch)
        weight, of_weight = self._importance(batch)
        loss, watch = self._add_kl(-weight * surrogate, watch | of_weight, log_prob, batch)
        return loss, {name: value.detach() for name, value in watch.items()}
