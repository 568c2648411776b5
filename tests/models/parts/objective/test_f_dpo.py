"""DPO under other divergences: its special cases, the paper's fixed point, and finite values."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from models.parts.objective.dpo import Dpo
from models.parts.objective.f_dpo import FDpo
from tests.support.enumerable_pairs import PAIRS, REFERENCE, REWARDS, batch_of_pairs, losses, mean_gradient
from tests.support.tiny_batches import numbers

LOGITS = numbers(1.5, -0.3, 0.4, -2.0)
BETA = 0.5
To = Literal["reverse_kl", "forward_kl", "jensen_shannon", "alpha"]
SLOPES: dict[str, Callable[[Any], Any]] = {
    "forward_kl": lambda t: -1 / t,
    "jensen_shannon": lambda t: torch.log(2 * t / (1 + t)),
    "alpha": lambda t: (1 - t**-0.5) / 0.5,
}
DIVERGENCES: dict[str, Callable[[Any], Any]] = {
    "forward_kl": lambda t: -torch.log(t),
    "jensen_shannon": lambda t: t * torch.log(t) - (t + 1) * torch.log((t + 1) / 2),
    "alpha": lambda t: (t**0.5 - 0.5 * t - 0.5) / (0.5 * -0.5),
}
"""Function f of each divergence. Its derivative is that in SLOPES up to a constant."""


def best_policy(to: To) -> Tensor:
    """Return the log-probs of the policy that maximises E[r] - beta D_f(pi || ref), found by ascent on its logits."""
    logits = REFERENCE.clone().requires_grad_()
    for _ in range(2500):
        policy = logits.softmax(0)
        t = policy / REFERENCE.exp()
        value = policy @ REWARDS - BETA * (REFERENCE.exp() * DIVERGENCES[to](t)).sum()
        (uphill,) = torch.autograd.grad(value, logits)
        logits = (logits + uphill / BETA).detach().requires_grad_()
    return logits.detach().log_softmax(0)


def test_under_reverse_kl_it_is_dpo() -> None:
    torch.testing.assert_close(losses(FDpo(beta=BETA, to="reverse_kl"), LOGITS), losses(Dpo(beta=BETA), LOGITS))


def test_alpha_goes_from_reverse_kl_near_zero_to_forward_kl_at_one() -> None:
    near = losses(FDpo(beta=BETA, to="alpha", alpha=1e-7), LOGITS)
    torch.testing.assert_close(near, losses(Dpo(beta=BETA), LOGITS), rtol=0, atol=1e-6)
    at_one = losses(FDpo(beta=BETA, to="alpha", alpha=1.0), LOGITS)
    torch.testing.assert_close(at_one, losses(FDpo(beta=BETA, to="forward_kl"), LOGITS))


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("to", SLOPES)
def test_where_reward_less_divergence_is_largest_no_pair_of_bradley_terry_labels_pulls(to: To) -> None:
    """The paper's theorem: the best policy under a divergence is a fixed point of its loss, but not of DPO's."""
    best = best_policy(to)
    gradient = mean_gradient(FDpo(beta=BETA, to=to), best)
    torch.testing.assert_close(gradient, torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-7)
    assert mean_gradient(Dpo(beta=BETA), best).abs().max() > 1e-3


@pytest.mark.parametrize("to", SLOPES)
@pytest.mark.parametrize("ratio", [-500.0, 500.0])
def test_it_is_finite_where_a_power_of_the_ratio_is_not(to: To, ratio: float) -> None:
    log_prob = (REFERENCE[PAIRS[:1]] + numbers(0.0, ratio)).requires_grad_()
    loss, _ = FDpo(to=to)(log_prob, batch_of_pairs(PAIRS[:1]))
    loss.sum().backward()
    assert log_prob.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(log_prob.grad).all()
