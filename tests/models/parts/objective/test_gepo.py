"""Group equivalent preference optimisation: its two terms by hand, the tie between right answers, the gradient."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo
from models.parts.objective.gepo import Gepo
from tests.support.enumerable_pairs import PAIRS, REFERENCE, batch_of_lists, batch_of_pairs, losses

RIGHT = [1.0, 1.0, 0.0, 0.0]
"""Rewards of the four answers of the enumerable policy: the first two are right."""
ONE_GROUP = batch_of_lists(RIGHT, REFERENCE.tolist(), [0] * 4)


def gradient(objective: Gepo, logits: Tensor, seen: TokenBatch = ONE_GROUP) -> Tensor:
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(objective(logits.log_softmax(0), seen)[0].sum(), logits)[0]


def test_of_two_completions_it_is_dpo() -> None:
    logits = torch.tensor([1.5, -0.3, 0.4, -2.0], dtype=torch.float64)
    loss, _ = Gepo(beta=0.4)(logits.log_softmax(0)[PAIRS].flatten(), batch_of_pairs(PAIRS))
    torch.testing.assert_close(loss, losses(Dpo(beta=0.4), logits))


def test_a_group_by_hand() -> None:
    # s = log pi - log ref is ln 2, 0, 0 (right, right, wrong); the second group has one completion, with s = 1
    seen = batch_of_lists([1.0, 1.0, 0.0, 0.5], [-2.0, -1.0, -3.0, -1.0], [0, 0, 0, 1])
    log_prob = torch.tensor([-2.0 + math.log(2), -1.0, -3.0, 0.0], dtype=torch.float64)
    loss, watch = Gepo(beta=1.0, tie=0.5)(log_prob, seen)
    preference = (math.log(3 / 2) + math.log(2)) / 2
    tie = (math.log(3 / 2) + math.log(3)) / 2 - math.log(2)
    assert loss.tolist() == pytest.approx([preference + 0.5 * tie, 0.0])
    assert watch["tie_loss"].tolist() == pytest.approx([tie, 0.0])
    assert watch["pair_accuracy"].tolist() == [0.5, 0.0]
    assert watch["equivalent_share"].tolist() == pytest.approx([2 / 3, 1.0])


@pytest.mark.parametrize("tie", [0.0, 3.0])
def test_where_the_right_share_their_mass_as_the_reference_does_the_tie_asks_for_nothing(tie: float) -> None:
    more = REFERENCE + torch.tensor([1.3, 1.3, 0.0, 0.4], dtype=torch.float64)  # both right ones raised equally
    torch.testing.assert_close(gradient(Gepo(tie=tie), more), gradient(Gepo(tie=0.0), more))


def test_mass_that_one_right_answer_took_from_the_other_is_given_back_and_only_by_the_tie() -> None:
    crowded = REFERENCE + torch.tensor([4.0, -4.0, 0.0, 0.0], dtype=torch.float64)
    pull = gradient(Gepo(beta=1.0, tie=1.0), crowded) - gradient(Gepo(beta=1.0, tie=0.0), crowded)
    half = math.tanh(8.0 / 2) / 2  # slope of the tie term at a margin of 8
    torch.testing.assert_close(pull, torch.tensor([half, -half, 0.0, 0.0], dtype=torch.float64))


def test_equivalence_can_be_read_from_one_component_within_a_tolerance() -> None:
    seen = batch_of_lists([0.0, 0.0, 0.0, 0.0], REFERENCE.tolist(), [0, 0, 1, 1])
    judged = {"judge": torch.tensor([0.9, 1.0, -1.0, 0.0], dtype=torch.float64)}
    seen = replace(seen, components=judged)
    assert Gepo(by="judge")._equivalent(seen).tolist() == [False, True, False, True]
    assert Gepo(by="judge", tolerance=0.2)._equivalent(seen).tolist() == [True, True, False, True]
    with pytest.raises(UserError, match="no reward is called other; there are judge"):
        Gepo(by="other")._equivalent(seen)


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(1)
    log_prob = torch.randn(6, dtype=torch.float64, generator=generator, requires_grad=True)
    seen = batch_of_lists([1.0, 1.0, 0.5, 0.3, 0.8, 0.8], [-1.0, -0.2, -0.7, -1.3, 0.1, -0.4], [0, 0, 0, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda x: Gepo(beta=0.9, tie=0.7)(x, seen)[0], (log_prob,), atol=1e-8)
