"""The optimum of DPO's loss on a policy whose pairs are all enumerated."""

import pytest
import torch
from torch import Tensor

from models.parts.objective.dpo import Dpo
from tests.support.enumerable_pairs import CHANCE, PAIRS, REFERENCE, losses, mean_gradient, optimum

NOTHING = torch.zeros(4, dtype=torch.float64)


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
def test_the_expected_gradient_vanishes_at_the_optimum_of_reward_less_kl(beta: float) -> None:
    torch.testing.assert_close(mean_gradient(Dpo(beta=beta), optimum(beta)), NOTHING)
    assert mean_gradient(Dpo(beta=beta), optimum(2 * beta)).abs().max() > 1e-3
    assert mean_gradient(Dpo(beta=beta), REFERENCE).abs().max() > 1e-3


def test_plain_descent_on_the_expected_loss_ends_at_the_optimum_of_reward_less_kl() -> None:
    logits = REFERENCE.clone().requires_grad_()
    descent = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        descent.zero_grad()
        loss = (CHANCE * losses(Dpo(beta=0.5), logits)).sum()
        loss.backward()
        return loss

    descent.step(closure)
    torch.testing.assert_close(logits.detach().softmax(0), optimum(0.5).softmax(0), atol=1e-6, rtol=0.0)


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: losses(Dpo(beta=0.7), x, PAIRS), (logits,), atol=1e-8)
