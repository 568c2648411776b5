"""A trust region of probabilities, not ratios: divergence proximal policy optimisation (DPPO, arXiv 2602.04879).

    loss = -keep * min(rho, ceiling) * A + drift * (log rho)^2,   rho = pi / mu
    keep = 0 where A > 0 and pi has risen too far above mu, or A <= 0 and it has fallen too far below; else 1

The distance is measured on the two events that a sample distinguishes, this token or any other:

    total_variation   |pi - mu|
    kl                mu log(mu / pi) + (1 - mu) log((1 - mu) / (1 - pi))

A ratio is a poor measure of it: for a rare token it is large after any change, for a likely one it stays near one while
the distribution changes. mu is the policy that sampled, as reported by the engine, so one weight and one region cover
precision, staleness and the steps of a round. With total variation, no ceiling and drift 0.001 it is the default loss
of prime-rl, whose square is that of Kimi K2.5 (arXiv 2602.02276); the authors' own code has the ceiling and no drift.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch

SMALLEST = 1e-8
"""Added to the probability of all other tokens, which is zero next to a certain token; as in the authors' code."""


def binary_kl(log_prob: Tensor, behaviour: Tensor) -> Tensor:
    """Compute KL(mu || pi) of this token against any other, any shape, nats.

    Args:
        log_prob: log pi of what was sampled, nats.
        behaviour: log mu, same shape.
    """
    chance, drawn = torch.exp(log_prob), torch.exp(behaviour)
    others = torch.log((1.0 - drawn + SMALLEST) / (1.0 - chance + SMALLEST))
    return drawn * (behaviour - log_prob) + (1.0 - drawn) * others


@part("dppo")
class Dppo(Objective):
    """Policy gradient within a region of probabilities, token by token."""

    level = "token"
    measure: Literal["total_variation", "kl"] = "total_variation"
    """Distance of a token from its sampler: in probability, or in nats of this token against any other."""
    region_low: NonNegativeFloat = 0.2
    """Distance by which a token may fall, if its advantage is not positive, before it leaves the gradient."""
    region_high: NonNegativeFloat = 0.2
    """Distance by which a token may rise, if its advantage is positive, before it leaves the gradient."""
    importance_ceiling: PositiveFloat | None = None
    """Largest weight pi / mu of a token; null: no limit."""
    drift: NonNegativeFloat = 0.001
    """Weight of the squared log-ratio to the sampler, at every token."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each token, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the log-probs under the engine, [tokens] each.
        """
        here = log_prob.detach()
        moved = torch.exp(here) - torch.exp(batch.behaviour)
        far = moved.abs() if self.measure == "total_variation" else binary_kl(here, batch.behaviour)
        good = batch.advantage > 0
        left = torch.where(good, (moved > 0) & (far > self.region_high), (moved < 0) & (far > self.region_low))
        log_ratio = log_prob - batch.behaviour
        ceiling = torch.inf if self.importance_ceiling is None else self.importance_ceiling
        weight = torch.exp(log_ratio.detach()).clamp(max=ceiling)
        kept = weight * (~left).to(weight)
        loss = -kept * batch.advantage * torch.exp(log_prob - here) + self.drift * log_ratio**2
        watch = {
            "importance_weight": weight,
            "masked_share": left.to(weight),
            "engine_gap": (batch.old - batch.behaviour).abs(),
        }
        return loss, {name: value.detach() for name, value in watch.items()}
