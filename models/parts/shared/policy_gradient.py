"""Common base of policy gradients by token: the engine's correction around the surrogate, and the KL added to it.

    loss = -w * surrogate + beta * KL

w is the weight of `models.parts.shared.importance`, the KL that of `models.parts.shared.kl_term`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from models.method.rollout import TokenBatch
from models.parts.shared.importance import Corrected
from models.parts.shared.kl_term import KlInLoss


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(KlInLoss, Corrected):
    """A surrogate for each token, corrected for its sampler, with a KL to the reference."""

    level = "token"

    @abstractmethod
    def _surrogate(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the quantity to maximise at each token, [tokens], gradient flows, and the metrics, [tokens] each."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the log-probs under the engine, the old policy and the reference, [tokens] each.
        """
        surrogate, watch = self._surrogate(log_prob, batch)
        weight, of_weight = self._importance(batch)
        loss, watch = self._add_kl(-weight * surrogate, watch | of_weight, log_prob, batch)
        return loss, {name: value.detach() for name, value in watch.items()}
