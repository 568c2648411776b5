"""The list loss: compared with its definition and with DPO, the ranks of a list, and the gradient."""

import math
from collections.abc import Sequence

import pytest
import torch

from models.parts.objective.dpo import Dpo
from models.parts.objective.tpo import Tpo, ranks
from models.parts.shared.within_groups import same_group
from tests.support.enumerable_pairs import PAIRS, batch_of_lists, batch_of_pairs, losses

TWO_PLACES = 1 - 1 / math.log2(3)
"""Difference of the discounts of the first and the second place."""


def by_definition(scores: Sequence[float], worth: Sequence[float]) -> float:
    """Return the loss of one list, computed directly from its definition."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    rank = {i: place + 1 for place, i in enumerate(order)}
    total = 0.0
    for i in range(len(scores)):
        for j in range(len(scores)):
            if worth[i] > worth[j]:
                discounts = abs(1 / math.log2(1 + rank[i]) - 1 / math.log2(1 + rank[j]))
                gain = abs(2 ** worth[i] - 2 ** worth[j])
                total += gain * discounts * math.log(1 + math.exp(scores[j] - scores[i]))
    return total


@pytest.mark.parametrize("better_is_worth", [1.0, 3.0])
def test_of_two_completions_it_is_dpo_times_the_weight_of_the_list(better_is_worth: float) -> None:
    logits = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)
    reward = torch.tensor([better_is_worth, 0.0], dtype=torch.float64).repeat(len(PAIRS))
    seen = batch_of_pairs(PAIRS, reward=reward)
    loss, _ = Tpo(beta=0.4)(logits.log_softmax(0)[PAIRS].flatten(), seen)
    torch.testing.assert_close(loss, TWO_PLACES * (2**better_is_worth - 1) * losses(Dpo(beta=0.4), logits))


def test_lists_side_by_side_are_each_the_formula_as_it_stands() -> None:
    generator = torch.Generator().manual_seed(0)
    log_prob, reference = torch.randn(2, 9, dtype=torch.float64, generator=generator).unbind()
    worth = [1.0, 0.0, 0.5, 0.0, 1.2, 0.3, 0.3, 0.9, 0.0]
    group = [0, 1, 0, 1, 0, 1, 1, 0, 2]  # the members of a list are not adjacent; the last list has only one
    loss, watch = Tpo(beta=0.7)(log_prob, batch_of_lists(worth, reference.tolist(), group))
    scores = (0.7 * (log_prob - reference)).tolist()
    members = [[i for i, number in enumerate(group) if number == which] for which in range(3)]
    expected = [by_definition([scores[i] for i in held], [worth[i] for i in held]) for held in members]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))
    assert expected[2] == 0.0 and all(value.shape == (3,) and not value.requires_grad for value in watch.values())


def test_the_order_in_which_a_list_is_read_changes_nothing() -> None:
    worth, reference, scores = [1.0, 0.0, 0.5, 0.2], [-1.0, -2.0, -3.0, -1.5], [-2.0, -1.0, -2.5, -1.1]
    loss, _ = Tpo()(torch.tensor(scores, dtype=torch.float64), batch_of_lists(worth, reference, [0] * 4))
    backwards, _ = Tpo()(
        torch.tensor(scores[::-1], dtype=torch.float64), batch_of_lists(worth[::-1], reference[::-1], [0] * 4)
    )
    torch.testing.assert_close(loss, backwards)


def test_a_list_of_equal_worth_gives_no_signal() -> None:
    log_prob = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64, requires_grad=True)
    loss, _ = Tpo()(log_prob, batch_of_lists([0.4] * 3, [-2.0] * 3, [0] * 3))
    loss.sum().backward()
    assert log_prob.grad is not None
    assert loss.item() == 0.0 and log_prob.grad.abs().max() == 0.0


def test_a_policy_that_is_its_reference_learns_from_every_pair() -> None:
    log_prob = torch.tensor([-1.0, -2.0, -3.0], dtype=torch.float64, requires_grad=True)
    loss, _ = Tpo(beta=1.0)(log_prob, batch_of_lists([0.0, 1.0, 2.0], [-1.0, -2.0, -3.0], [0] * 3))
    loss.sum().backward()
    places = [1.0, 1 / math.log2(3), 0.5]
    weights = [places[0] - places[1], 3 * (places[0] - places[2]), 2 * (places[1] - places[2])]  # 1>0, 2>0, 2>1
    half = [weights[0] + weights[1], weights[2] - weights[0], -weights[1] - weights[2]]
    torch.testing.assert_close(log_prob.grad, torch.tensor(half, dtype=torch.float64) / 2)


def test_places_are_counted_in_each_list_and_equals_stand_in_their_order() -> None:
    together = same_group(torch.tensor([0, 1, 0, 1, 0]))
    actual = ranks(torch.tensor([0.5, 9.0, 0.5, 10.0, 0.7]), together)
    assert actual.tolist() == [2, 2, 3, 1, 1]


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    log_prob = torch.randn(6, dtype=torch.float64, generator=generator, requires_grad=True)
    seen = batch_of_lists([1.0, 0.0, 0.5, 0.3, 0.8, 0.0], [-1.0, -0.2, -0.7, -1.3, 0.1, -0.4], [0, 0, 0, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda x: Tpo(beta=0.9)(x, seen)[0], (log_prob,), atol=1e-8)
