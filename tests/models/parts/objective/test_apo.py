"""Anchored preference optimisation: values by hand, and the direction of the gradient for each anchor."""

import math
from typing import Literal

import pytest
import torch

from models.parts.objective.apo import Apo
from tests.support.enumerable_pairs import batch_of_pairs
from tests.support.tiny_batches import numbers

PAIR = torch.tensor([[0, 1]])


def loss_of(anchor: Literal["zero", "down"], better: float, worse: float) -> tuple[float, list[float]]:
    """Return the loss and its gradient for the log-ratios of both answers. The reference has log-prob -3 for each."""
    log_prob = numbers(better - 3.0, worse - 3.0)[None].requires_grad_()
    loss, _ = Apo(beta=1.0, anchor=anchor)(log_prob, batch_of_pairs(PAIR, reference=numbers(-3.0, -3.0)))
    return loss.item(), torch.autograd.grad(loss.sum(), log_prob)[0][0].tolist()


def test_pairs_by_hand() -> None:
    # sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4
    assert loss_of("zero", math.log(3), -math.log(3))[0] == pytest.approx(0.25 + 0.25)
    assert loss_of("down", math.log(3), 0.0)[0] == pytest.approx(0.75 + 0.25)


@pytest.mark.parametrize(("anchor", "way"), [("zero", -1), ("down", 1)])
def test_from_the_reference_the_better_answer_goes_the_way_of_the_anchor_and_the_worse_one_down(
    anchor: Literal["zero", "down"], way: int
) -> None:
    _, (better, worse) = loss_of(anchor, 0.0, 0.0)
    if anchor == "zero":
        assert (better, worse) == (way * 0.25, 0.25)
    else:  # at the reference, the margin's pull up and the anchor's pull down are equal
        assert (better, worse) == (0.0, 0.25)
        _, (apart, _) = loss_of(anchor, 0.0, -2.0)
        assert apart > 0  # if the policy prefers the better answer


@pytest.mark.parametrize("anchor", ["zero", "down"])
def test_a_pair_that_is_far_on_the_wrong_side_pulls_as_little_as_one_far_on_the_right(
    anchor: Literal["zero", "down"],
) -> None:
    """A logistic loss has its largest gradient on the wrong side."""
    _, wrong = loss_of(anchor, -40.0, 40.0)
    _, right = loss_of("zero", 40.0, -40.0)
    assert max(map(abs, wrong + right)) < 1e-15
