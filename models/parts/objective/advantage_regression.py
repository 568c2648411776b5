"""Regress log-ratios to known advantages (Direct Advantage Policy Optimization, paper 75, arXiv 2412.18279).

    loss of a step = 1/2 (beta * log pi/ref (step) - A(step))^2

Derivation: max over pi of E[A] - beta KL(pi || ref) in each state has the solution pi* = ref exp(A / beta) / Z. If A is
the advantage of the reference itself, its mean under ref is zero, so log Z is of second order in A / beta and is left
out; the remaining equation, beta log pi*/ref = A, is fitted by least squares on sampled steps. It needs no importance
ratio to the sampling policy: any state and any step may be regressed on. At pi = ref its gradient is -beta A grad log
pi.

A step is a stretch of a completion's tokens with one advantage; log pi/ref (step) sums over it. Two neighbouring steps
with exactly the same advantage count as one. Each token carries its share, the step's loss over its length.
"""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor

from models.method.objective import Objective
from models.method.registry import part
from models.method.token_batch import TokenBatch


def stretches(advantage: Tensor, completion: Tensor) -> Tensor:
    """Return the number of the step that each token belongs to, from 0, [tokens], int64.

    Args:
        advantage: advantage of each token, [tokens].
        completion: which completion each token belongs to, [tokens].
    """
    differs = (advantage[1:] != advantage[:-1]) | (completion[1:] != completion[:-1])
    return torch.cat([torch.zeros_like(completion[:1]), differs.long()]).cumsum(0)


@part("advantage_regression")
class AdvantageRegression(Objective):
    """Squared distance of beta log pi/ref to the advantage, step by step; needs a reference."""

    level = "token"
    needs_reference = True
    beta: PositiveFloat = 0.1
    """Strength of the pull to the reference, in units of the advantage per nat."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute each token's share of its step's loss, [tokens].

        Args:
            log_prob: log pi of each token, [tokens], nats; gradient flows.
            batch: advantages and the reference's log-probs, [tokens] each.
        """
        assert batch.reference is not None, "the recipe check makes sure that there is a reference"
        step = stretches(batch.advantage, batch.completion)
        lengths = torch.bincount(step)
        implied = torch.zeros(len(lengths), dtype=log_prob.dtype, device=log_prob.device).index_add(
            0, step, self.beta * (log_prob - batch.reference)
        )
        error = implied[step] - batch.advantage
        watch = {"step_error": error.abs(), "implied_advantage": implied[step]}
        return error.square() / 2 / lengths[step], {name: value.detach() for name, value in watch.items()}
