"""DPO on pairs of steps and its optimum, the advantage-weighted policy (paper 113, arXiv 2406.14532).

An answer has two steps of three kinds each, so every policy, pair and value can be enumerated. Q is the expected reward
of the reference after a step, which Monte-Carlo continuations estimate. A = Q - V; V is the value before the step.
"""

import pytest
import torch
from torch import Tensor

from models.method.objective import Objective
from models.parts.objective.dpo import Dpo
from models.parts.objective.exponential_likelihood import ExponentialLikelihood
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import make_batch

RIGHT = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
"""Whether the first step [rows] followed by the second one [columns] is right, 1 or 0."""
FIRST = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
SECOND = torch.tensor([[0.25, 0.25, 0.5], [0.1, 0.6, 0.3], [0.4, 0.3, 0.3]], dtype=torch.float64)
"""Probabilities of the reference: of the first step, and of the second one after each first."""
REFERENCES = torch.cat([FIRST[None], SECOND])
"""Probabilities after no step and after each first one, [4 prefixes, 3 steps]."""
Q = torch.cat([(SECOND * RIGHT).sum(1)[None], RIGHT])
A = Q - (REFERENCES * Q).sum(1, keepdim=True)
PAIRS = torch.tensor([(better, worse) for better in range(3) for worse in range(3)])


def optimum(beta: float) -> Tensor:
    """Return the reference reweighted by exp(A / beta) after each prefix, [4, 3]."""
    return (REFERENCES.log() + A / beta).softmax(1)


def per_step_loss(objective: Objective, logits: Tensor, prefix: int) -> Tensor:
    """Return the expected loss of DPO on pairs of steps after a prefix, a scalar. Both steps are drawn from the
    reference, and one of them is the better one with probability sigmoid(A - A')."""
    reference, advantage = REFERENCES[prefix], A[prefix]
    chance = reference[PAIRS].prod(1) * torch.sigmoid(advantage[PAIRS[:, 0]] - advantage[PAIRS[:, 1]])
    losses, _ = objective(logits.log_softmax(0)[PAIRS], batch_of_pairs(PAIRS, reference.log()))
    return (chance * losses).sum()


def weighted_loss(beta: float, logits: Tensor, prefix: int) -> Tensor:
    """Return the likelihood loss of the reference's steps after a prefix, weighted by exp(A / beta), a scalar."""
    nothing = torch.zeros(3, dtype=torch.float64)
    batch = make_batch(advantage=A[prefix], behaviour=nothing, old=nothing, reference=nothing)
    losses, _ = ExponentialLikelihood(beta=beta, ceiling=1e9)(logits.log_softmax(0), batch)
    return (REFERENCES[prefix] * losses).sum()


def gradient(loss: Tensor, logits: Tensor) -> Tensor:
    return torch.autograd.grad(loss, logits)[0]


def test_advantages_by_hand() -> None:
    assert Q[0].tolist() == pytest.approx([0.5, 0.6, 0.0])
    assert A[0].tolist() == pytest.approx([0.1, 0.2, -0.4])  # V = 0.1 + 0.3
    assert A[1].tolist() == pytest.approx([0.5, 0.5, -0.5]) and A[3].tolist() == [0.0] * 3


@pytest.mark.parametrize("beta", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("prefix", range(4))
def test_per_step_dpo_and_advantage_weighted_likelihood_have_one_optimum(beta: float, prefix: int) -> None:
    there = optimum(beta)[prefix].log().requires_grad_()
    nothing = torch.zeros(3, dtype=torch.float64)
    torch.testing.assert_close(gradient(per_step_loss(Dpo(beta=beta), there, prefix), there), nothing)
    torch.testing.assert_close(gradient(weighted_loss(beta, there, prefix), there), nothing)
    if prefix < 3:  # after the last prefix all steps are equally good, and the reference is the optimum
        away = REFERENCES[prefix].log().requires_grad_()
        assert gradient(per_step_loss(Dpo(beta=beta), away, prefix), away).abs().max() > 1e-3
        assert gradient(weighted_loss(beta, away, prefix), away).abs().max() > 1e-3


@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_descent_on_pairs_of_steps_ends_at_the_advantage_weighted_policy(prefix: int) -> None:
    logits = REFERENCES[prefix].log().requires_grad_()
    descent = torch.optim.LBFGS(
        [logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=0.0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        descent.zero_grad()
        loss = per_step_loss(Dpo(beta=0.5), logits, prefix)
        loss.backward()
        return loss

    descent.step(closure)
    torch.testing.assert_close(logits.detach().softmax(0), optimum(0.5)[prefix], atol=1e-6, rtol=0.0)
