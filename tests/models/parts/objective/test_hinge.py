"""The hinge loss of pairs: by hand with and without a reference, beyond the margin, and with imitation."""

import pytest
import torch

from models.parts.objective.hinge import Hinge
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])
REFERENCE = numbers(-2.0, -1.0)


def loss_of(objective: Hinge, better: float, worse: float) -> tuple[list[float], list[list[float]]]:
    log_prob = numbers(better, worse)[None].requires_grad_()
    loss, _ = objective(log_prob, batch_of_pairs(PAIR, reference=REFERENCE))
    return loss.tolist(), torch.autograd.grad(loss.sum(), log_prob)[0].tolist()


def test_a_pair_by_hand_with_and_without_a_reference() -> None:
    assert loss_of(Hinge(beta=0.25), -1.0, -3.0) == ([0.5], [[-0.25, 0.25]])  # 1 - 0.25 * 2
    # log-ratios 1 and -2: 1 - 0.25 * 3
    assert loss_of(Hinge(beta=0.25, against_reference=True), -1.0, -3.0) == ([0.25], [[-0.25, 0.25]])


def test_a_pair_that_leads_by_a_margin_of_one_is_left_alone() -> None:
    assert loss_of(Hinge(beta=0.5), -1.0, -4.0) == ([0.0], [[0.0, 0.0]])


def test_imitation_goes_on_where_the_hinge_is_closed() -> None:
    loss, gradient = loss_of(Hinge(beta=0.5, sft=0.5), -1.0, -4.0)
    assert loss == [0.5] and gradient == [[-0.5, 0.0]]


@pytest.mark.parametrize("against", [True, False])
def test_it_needs_a_reference_where_it_is_held_against_one(against: bool) -> None:
    assert Hinge(against_reference=against).needs_reference is against
