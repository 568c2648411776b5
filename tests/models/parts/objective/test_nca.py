"""Noise contrastive alignment of pairs: a pair by hand, and the gradients of the better and the worse answer."""

import math

import pytest
import torch

from models.parts.objective.nca import Nca
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])


def gradient_at(better: float, worse: float) -> tuple[float, list[float]]:
    log_prob = numbers(better, worse)[None].requires_grad_()
    loss, _ = Nca(beta=1.0)(log_prob, batch_of_pairs(PAIR, reference=numbers(0.0, 0.0)))
    return loss.item(), torch.autograd.grad(loss.sum(), log_prob)[0][0].tolist()


def test_a_pair_by_hand() -> None:
    loss, _ = gradient_at(math.log(3), -math.log(3))  # the sigmoids are 3/4 and 1/4
    assert loss == pytest.approx(-math.log(0.75) - 0.5 * math.log(0.25) - 0.5 * math.log(0.75))


def test_the_better_answer_is_content_at_the_log_of_two_whatever_the_worse_one_is() -> None:
    """The gradient is zero where the policy makes the answer twice as likely as the reference does, unlike DPO's."""
    for worse in (-5.0, 0.0, 3.0):
        assert gradient_at(math.log(2), worse)[1][0] == pytest.approx(0.0, abs=1e-15)


def test_the_worse_answer_falls_without_end() -> None:
    assert all(gradient_at(0.0, worse)[1][1] > 0 for worse in (-5.0, 0.0, 5.0))
