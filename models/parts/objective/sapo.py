"""Soft adaptive policy optimisation: a gate that closes softly instead of a clip (SAPO, arXiv 2511.20347).

    loss = -w * (4 / tau) * sigmoid(tau * (rho - 1)) * A + beta * KL,   rho = pi / pi_old
    tau  = tau_positive where A > 0, else tau_negative

The gradient is that of rho * A times 4 p (1 - p), p = sigmoid(tau (rho - 1)): one on policy, whatever tau is, and less
the further the ratio has moved either way. Pushing a token down lifts all others, most of which are meaningless, so the
gate of negative advantages closes sooner.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.registry import part
from models.method.token_batch import TokenBatch
from models.parts.shared.importance import ImportanceSettings, importance_weight
from models.parts.shared.kl_term import KlSettings, kl_term


@part("sapo")
class Sapo(KlSettings, ImportanceSettings):
    """Softly gated surrogate, token by token."""

    level = "token"
    tau_positive: PositiveFloat = 1.0
    """Speed at which the gate closes if the advantage is positive."""
    tau_negative: PositiveFloat = 1.05
    """Speed at which the gate closes if the advantage is not positive."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens]; `log_prob` is log pi of each, nats."""
        ratio = torch.exp(log_prob - batch.old)
        tau = torch.where(batch.advantage > 0, self.tau_positive, self.tau_negative).to(ratio)
        gate = torch.sigmoid(tau * (ratio - 1.0))
        surrogate, watch = 4.0 / tau * gate * batch.advantage, {"gate": (4.0 * gate * (1.0 - gate)).detach()}
        weight, of_weight = importance_weight(batch, self)
        penalty, of_kl = kl_term(log_prob, batch, self)
        return penalty - weight * surrogate, watch | of_weight | of_kl
