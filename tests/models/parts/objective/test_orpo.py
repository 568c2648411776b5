"""ORPO's loss: a pair by hand, imitation as a limit, and finite values for answers that are certain."""

import math

import pytest
import torch
from torch import Tensor

from models.parts.objective.orpo import Orpo
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])


def loss_of(objective: Orpo, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    return objective(log_prob, batch_of_pairs(PAIR))


def test_a_pair_by_hand() -> None:
    # p = 3/4 and 1/4: odds 3 and 1/3, log odds ratio log 9, sigmoid 0.9
    loss, watch = loss_of(Orpo(beta=0.5), numbers(0.75, 0.25).log()[None])
    assert loss.tolist() == pytest.approx([-math.log(0.75) - 0.5 * math.log(0.9)])
    assert watch["pair_margin"].tolist() == pytest.approx([math.log(9)])


def test_without_the_odds_ratio_it_is_imitation_of_the_better_answer() -> None:
    log_prob = numbers(-1.25, -3.0)[None].requires_grad_()
    loss, _ = loss_of(Orpo(beta=1e-300), log_prob)
    assert loss.tolist() == [1.25]
    assert torch.autograd.grad(loss.sum(), log_prob)[0].tolist() == [[-1.0, pytest.approx(0.0)]]


def test_its_gradient_by_the_log_probs_is_that_of_finite_differences() -> None:
    def total(log_prob: Tensor) -> Tensor:
        return loss_of(Orpo(beta=0.3), log_prob)[0].sum()

    torch.autograd.gradcheck(total, numbers(-0.02, -4.0)[None].requires_grad_())


@pytest.mark.parametrize("sure", [0.0, -1e-300, -1e-18])
def test_an_answer_that_is_certain_costs_a_finite_loss_with_a_finite_gradient(sure: float) -> None:
    """1 - p is zero in float64 for all of these, so log(1 - exp(m)) would be minus infinity."""
    log_prob = numbers(sure, -2.0)[None].requires_grad_()
    loss, _ = loss_of(Orpo(), log_prob)
    loss.sum().backward()
    assert log_prob.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(log_prob.grad).all()
