"""Weights that correct an engine's samples to the learner's policy, bounded so that no single one decides a step.

    w_t = pi_old(y_t) / mu(y_t)                  of a token (truncated: TIS; Yao et al. 2025, "Your Efficient RL
                                                 Framework Secretly Brings You Off-Policy RL Training")
    w   = pi_old(y) / mu(y)                      of a completion, the product of its tokens' ratios (Liu, Li et al.
                                                 2025, "When Speed Kills Stability")
    w   = (pi_old(y) / mu(y)) ^ (1 / |y|)        of a completion by geometric mean, in one range for all lengths

pi_old is the learner's policy as the round began, mu the policy that sampled, as reported by the engine, which differs
by precision and, with `schedule.async`, by a round. Only a completion's own weight makes the expected gradient exact;
its variance grows with the length of the completion. A token's weight leaves out the tokens before it, so it is biased
and of low variance. A weight out of bounds is set to the bound (truncated) or removed from the loss (masked): with two
bounds and by token that is IcePop (arXiv 2510.18855), by completion masked importance sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.token_batch import TokenBatch


def truncated_importance(log_prob: Tensor, behaviour: Tensor, ceiling: float) -> Tensor:
    """Compute the weight min(pi / mu, ceiling), no gradient, any shape.

    Args:
        log_prob: log pi of what was sampled, of tokens, of completions or of pairs, nats.
        behaviour: log mu under the policy that sampled, same shape, nats.
        ceiling: largest weight.
    """
    return torch.exp((log_prob - behaviour).detach()).clamp(max=ceiling)


@dataclass(frozen=True, kw_only=True)
class ImportanceSettings(Objective):
    """Settings of policy gradients that correct the engine's log-probs to the learner's. Set under `objective:`."""

    importance_level: Literal["token", "completion", "geometric"] = "token"
    """Level of the weights: each token, or each completion by the product or the geometric mean of its tokens'
    ratios."""
    importance_rule: Literal["truncated", "masked"] = "truncated"
    """Treatment of a weight that is out of bounds: truncated sets it to the bound, masked to zero."""
    importance_floor: NonNegativeFloat | None = None
    """Smallest weight that corrects the engine's log-probs to the learner's; null: no limit."""
    importance_ceiling: PositiveFloat | None = 2.0
    """Largest weight that corrects the engine's log-probs to the learner's; null: no limit."""

    def __post_init__(self) -> None:
        floor, ceiling = self.importance_floor, self.importance_ceiling
        if floor is not None and ceiling is not None and floor > ceiling:
            raise ValueError(f"importance_floor is {floor}, above importance_ceiling, {ceiling}")


def importance_weight(batch: TokenBatch, settings: ImportanceSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the weight of each token, [tokens], no gradient, and its metrics, [tokens] each.

    Args:
        batch: log-probs under the policy as the round began and under the engine, [tokens] each.
        settings: level, rule and bounds of the weights.
    """
    apart = (batch.old - batch.behaviour).detach()
    log_ratio = apart
    if settings.importance_level == "completion":
        log_ratio = batch.sum_by_completion(apart)[batch.completion]
    elif settings.importance_level == "geometric":
        log_ratio = batch.mean_by_completion(apart)[batch.completion]
    ratio = torch.exp(log_ratio)
    floor = 0.0 if settings.importance_floor is None else settings.importance_floor
    ceiling = torch.inf if settings.importance_ceiling is None else settings.importance_ceiling
    held = ratio.clamp(floor, ceiling)
    masked = settings.importance_rule == "masked"
    weight = torch.where(ratio == held, ratio, 0.0) if masked else held
    watch = {"importance_weight": weight, "engine_gap": apart.abs()}
    return weight, watch | ({"importance_masked_share": (ratio != held).to(ratio)} if masked else {})
