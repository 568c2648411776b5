"""The KL to the reference as a term of the loss, estimated at the sampled tokens.

    k2 = d^2 / 2,   k3 = exp(d) - 1 - d,   d = log(reference / pi)

Both are estimators of KL(pi || reference) that are never negative (Schulman 2020); k3 is unbiased, k2 is not. As terms
of a loss their gradients matter, and these are taken through the samples' own log-probs: over samples of pi

    E[grad k2] = grad KL(pi || reference)     the KL's own
    E[grad k3] = grad KL(reference || pi)     of the other direction (GRPO, arXiv 2402.03300, takes this one)
    E[grad k1] = E[grad log pi] = 0           for k1 = -d, which is refused: it would only add noise

(arXiv 2510.01555 and 2512.21852 agree.) k1 has its place in the reward: `models.parts.shared.kl_in_reward`.

For episodes every turn can have its own weight, for the whole run or the first part of it: SCoRe (paper 121, arXiv
2409.12917) holds the first of two attempts near the reference while the second learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import BeforeValidator, NonNegativeFloat
from torch import Tensor

from models.base.bounds import Share
from models.learner.upload import to_device
from models.method.objective import Objective
from models.method.token_batch import TokenBatch


def k2(log_prob: Tensor, reference: Tensor) -> Tensor:
    """Compute half the squared log-ratio of policy and reference at each sampled token, [tokens], nats^2, >= 0."""
    return 0.5 * (log_prob - reference) ** 2


def k3(log_prob: Tensor, reference: Tensor) -> Tensor:
    """Estimate KL(policy || reference) at each sampled token, [tokens], nats, >= 0."""
    difference = reference - log_prob
    return torch.exp(difference) - 1.0 - difference


def _no_k1(name: object) -> object:
    if name == "k1":
        raise ValueError(
            "as a term of the loss k1 has no gradient in expectation; take k2, or advantage.kl_in_reward, which is k1"
        )
    return name


@dataclass(frozen=True, kw_only=True)
class KlSettings(Objective):
    """Settings of objectives with a KL to the reference as a term of each token's loss. Set under `objective:`."""

    kl: NonNegativeFloat = 0.0
    """Weight of the KL term (beta); needs a reference. With zero the KL is only reported."""
    kl_estimator: Annotated[Literal["k2", "k3"], BeforeValidator(_no_k1)] = "k3"
    """Estimator of the term. k2 has the gradient of KL(policy || reference), k3 that of KL(reference || policy)."""

    kl_by_turn: tuple[NonNegativeFloat, ...] = ()
    """Weights at the tokens of each turn of an episode, the last also for all later turns; empty: kl at all turns."""
    kl_by_turn_until: Share = 1.0
    """Share of the run's rounds after which kl applies to all turns."""

    @property
    def needs_reference(self) -> bool:
        """Whether any weight in `kl_by_turn` is above zero."""
        return any(self.kl_by_turn)


def kl_term(log_prob: Tensor, batch: TokenBatch, settings: KlSettings) -> tuple[Tensor | float, dict[str, Tensor]]:
    """Compute the KL term of each token's loss, [tokens], and the KL as a metric; zero and none without a reference.

    A term of weight zero is only reported, not added: far from the reference exp overflows, and 0 * inf is NaN.

    Args:
        log_prob: log pi of each token, [tokens], nats; gradient flows.
        batch: the reference's log-probs, [tokens].
        settings: weights and estimator.
    """
    if batch.reference is None:
        return 0.0, {}
    estimate = k2 if settings.kl_estimator == "k2" else k3
    weights = _weights(batch, settings)
    adds = isinstance(weights, Tensor) or weights != 0
    divergence = estimate(log_prob if adds else log_prob.detach(), batch.reference)
    return weights * divergence if adds else 0.0, {"kl": divergence.detach()}


def _weights(batch: TokenBatch, settings: KlSettings) -> float | Tensor:
    """Return the weight of the KL at each token, [tokens], or one for all of them."""
    if not settings.kl_by_turn or batch.progress >= settings.kl_by_turn_until:
        return settings.kl
    weights = torch.tensor(settings.kl_by_turn, dtype=batch.old.dtype)
    if batch.turn is None:
        return float(weights[0])
    return to_device(weights, batch.old.device)[batch.turn.clamp(max=len(weights) - 1)]
