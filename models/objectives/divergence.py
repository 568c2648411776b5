"""Distribution matching: the policy approaches a target that the reward defines, in a divergence of one's choice.

    target     p*(y) = p0(y) exp(r(y) / beta) / Z
    gradient   grad D_f(pi || p*) = E_pi[ f'(pi / p*) grad log pi ],   D_f(pi || p) = E_p[ f(pi / p) ]

so every divergence is a policy gradient with the pseudo-reward -f'(pi / p*). Reverse KL gives -log(pi / p*) - 1: the
gradient of E[r] - beta KL(pi || p0), divided by beta (Korbak et al. 2022, arXiv 2205.11275; paper 56). The others are
f-DPG (Go et al. 2023, arXiv 2302.08215; paper 333). The gradient's form is derived here: D_f = sum_y p f(pi / p), and
the derivative of p f(pi / p) by pi is f'(pi / p).

Z is estimated from the group, self-normalised: with mu the policy that sampled,

    Z = sum_i p0_i exp(r_i / beta) / mu_i  /  sum_i pi_i / mu_i

whose denominator is G on policy, and which does not care about a constant factor of mu. It makes pi / p* at least
1 / G on policy, so that forward KL, whose pseudo-reward p* / pi is unbounded by itself, is bounded by G. The baseline
is the group's mean pseudo-reward, undone by G / (G - 1) for the share of the completion itself; in reverse KL it takes
log Z away whole, and the gradient is unbiased for any G. The other divergences are biased by the estimate of Z, less
the larger G.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from models.loop.rollout import TokenBatch
from models.objectives.posterior import log_evidence, log_sum_by_group
from models.parts import part

Divergence = Literal["reverse_kl", "forward_kl", "jensen_shannon", "total_variation"]
"""D_f(pi || p*): KL(pi || p*), KL(p* || pi), KL(pi || m) + KL(p* || m) with m their mean, half of sum |pi - p*|."""

ROUNDING = 1e-6
"""Nats by which pi and p* may differ and still count as equal, where total variation has a corner."""


def slope(log_ratio: Tensor, to: Divergence) -> Tensor:
    """f'(t) at t = exp(log_ratio), any shape."""
    if to == "reverse_kl":  # f = t log t
        return log_ratio + 1.0
    if to == "forward_kl":  # f = -log t
        return -torch.exp(-log_ratio)
    if to == "jensen_shannon":  # f = t log(2t / (t + 1)) + log(2 / (t + 1))
        return math.log(2.0) - functional.softplus(-log_ratio)
    return 0.5 * torch.sign(log_ratio) * (log_ratio.abs() > ROUNDING)  # f = |t - 1| / 2


def share_of_divergence(log_ratio: Tensor, to: Divergence) -> Tensor:
    """f(t) / t at t = exp(log_ratio), any shape, nats (total variation: none): its mean under pi is D_f(pi || p*)."""
    if to == "reverse_kl":
        return log_ratio
    if to == "forward_kl":
        return -log_ratio * torch.exp(-log_ratio)
    if to == "jensen_shannon":
        rest = (math.log(2.0) - functional.softplus(log_ratio)) * torch.exp(-log_ratio)
        return slope(log_ratio, to) + rest
    return 0.5 * (1.0 - torch.exp(-log_ratio)).abs()


@part("objective", "divergence")
class DivergenceToPosterior:
    """One loss a group; needs a reference, the prior."""

    level: ClassVar[Literal["group"]] = "group"
    needs_reference: ClassVar[bool] = True
    to: Divergence = "reverse_kl"
    """Which divergence between policy and target."""
    beta: Annotated[float, Field(gt=0)] = 0.1
    """Units of reward that make a completion e times likelier than the prior has it."""
    importance_ceiling: Annotated[float, Field(gt=0)] = 2.0
    """Largest weight pi / mu of a whole completion that the policy did not sample as it stands now."""

    def __call__(self, log_prob: Tensor, batch: TokenBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """A value of each group whose gradient is the divergence's, [groups].

        Args:
            log_prob: log pi of whole completions, [completions], nats; gradient flows.
            batch: rewards, groups, and the log-probs under the sampler and the prior, [tokens] each.
        """
        here = log_prob.detach()
        behaviour = batch.sum_by_completion(batch.behaviour)
        evidence = log_evidence(batch, self.beta)
        log_z = log_sum_by_group(evidence - behaviour, batch) - log_sum_by_group(here - behaviour, batch)
        log_ratio = here - evidence + batch.of_group(log_z)
        weight = torch.exp(here - behaviour).clamp(max=self.importance_ceiling)
        punishment = slope(log_ratio, self.to)
        baseline = batch.sum_by_group(weight * punishment) / batch.sum_by_group(weight)
        sizes = batch.sum_by_group(torch.ones_like(here))
        alone = sizes / (sizes - 1.0).clamp(min=1.0)
        pushed = weight * (punishment - batch.of_group(baseline)) * log_prob
        watch = {
            "divergence": batch.mean_by_group(weight * share_of_divergence(log_ratio, self.to)),
            "log_normaliser": log_z,
            "log_ratio_to_prior": batch.mean_by_group(here - evidence + batch.rewards() / self.beta),
        }
        return alone * batch.mean_by_group(pushed), {name: value.detach() for name, value in watch.items()}
