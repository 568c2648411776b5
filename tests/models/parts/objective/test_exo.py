"""Tests of EXO's loss of pairs: values by hand, its minimum, and its gradient for pairs that are far wrong."""

import math

import pytest
import torch

from models.parts.objective.dpo import Dpo
from models.parts.objective.exo import Exo
from models.parts.shared.pair_loss import PairLoss
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])


def at_margin(objective: PairLoss, margin: float) -> tuple[float, float]:
    log_prob = numbers(margin, 0.0)[None].requires_grad_()
    loss, _ = objective(log_prob, batch_of_pairs(PAIR, reference=numbers(0.0, 0.0)))
    return loss.item(), torch.autograd.grad(loss.sum(), log_prob)[0][0, 0].item()


def test_a_pair_by_hand() -> None:
    loss, _ = at_margin(Exo(beta=1.0, label_smoothing=0.1), math.log(3))
    assert loss == pytest.approx(0.75 * math.log(0.75 / 0.9) + 0.25 * math.log(0.25 / 0.1))


def test_it_is_zero_where_the_preference_is_the_smoothed_label_and_above_elsewhere() -> None:
    loss, slope = at_margin(Exo(beta=1.0, label_smoothing=0.2), math.log(4.0))
    assert loss == pytest.approx(0.0, abs=1e-15) and slope == pytest.approx(0.0, abs=1e-15)
    assert all(at_margin(Exo(beta=1.0, label_smoothing=0.2), m)[0] > 0 for m in (-3.0, 0.0, 1.3, 1.5, 8.0))


def test_a_pair_that_is_wrong_by_far_is_given_up_where_dpo_pulls_with_all_its_strength() -> None:
    assert abs(at_margin(Exo(beta=1.0), -40.0)[1]) < 1e-14
    assert at_margin(Dpo(beta=1.0), -40.0)[1] == pytest.approx(-1.0)


@pytest.mark.parametrize("margin", [-800.0, 800.0])
def test_it_is_finite_however_sure_the_policy_is(margin: float) -> None:
    assert all(map(math.isfinite, at_margin(Exo(beta=1.0), margin)))
