"""The log-ratio modulated loss: its two forms, its gradient, and finite values for large margins."""

import math

import pytest
import torch

from models.parts.objective.discopop import DiscoPop
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])


def at_margin(margin: float, temperature: float = 0.05) -> tuple[float, float]:
    log_prob = numbers(margin, 0.0)[None].requires_grad_()
    objective = DiscoPop(beta=1.0, temperature=temperature)
    loss, _ = objective(log_prob, batch_of_pairs(PAIR, reference=numbers(0.0, 0.0)))
    return loss.item(), torch.autograd.grad(loss.sum(), log_prob)[0][0, 0].item()


def test_by_hand_at_a_margin_of_zero_both_forms_count_half() -> None:
    assert at_margin(0.0)[0] == pytest.approx((math.log(2) + 1.0) / 2)


def test_a_wrong_pair_pays_the_logistic_loss_and_a_right_one_the_exponential() -> None:
    assert at_margin(-2.0)[0] == pytest.approx(math.log(1 + math.exp(2.0)))
    assert at_margin(2.0)[0] == pytest.approx(math.exp(-2.0))


def test_its_gradient_is_that_of_finite_differences_through_the_weight_too() -> None:
    for margin in (-0.1, 0.0, 0.07):
        (above, _), (below, _) = at_margin(margin + 1e-6, 0.1), at_margin(margin - 1e-6, 0.1)
        assert at_margin(margin, 0.1)[1] == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_a_policy_that_begins_as_its_reference_is_pushed_the_right_way_only_above_a_temperature_of_a_tenth() -> None:
    turning = (1.0 - math.log(2)) / 3.0
    assert at_margin(0.0, turning)[1] == pytest.approx(0.0, abs=1e-12)
    assert at_margin(0.0, 0.05)[1] > 0.7 > 0 > at_margin(0.0, 0.2)[1]


@pytest.mark.parametrize("margin", [-1e5, -70.0, 1e5])
def test_it_is_finite_however_wrong_a_pair_is(margin: float) -> None:
    """exp(1e5) would be infinite, and infinity times a weight of zero would be NaN."""
    loss, slope = at_margin(margin)
    assert math.isfinite(loss) and math.isfinite(slope)
    assert margin > 0 or (loss == pytest.approx(-margin) and slope == pytest.approx(-1.0))
