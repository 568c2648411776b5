"""Step-APO: values by hand, DPO as its limit, an independent reference, its gradient, and the margin at its optimum."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.objective.dpo import Dpo
from models.parts.objective.step_apo import StepApo
from models.recipes.load import load_recipe
from tests.support.enumerable_pairs import PAIRS, REWARDS, batch_of_pairs, losses
from tests.support.ragged_pairs import Pairs, as_it_is, random_pairs

VALUES = torch.tensor([0.9, 0.1, 0.5, 0.5, 0.25, 1.0, 0.7, 0.6, 0.3, 0.2, 0.0, 1.0], dtype=torch.float64)
"""Values of the two steps of each of six pairs."""


def valued(values: Tensor = VALUES) -> Pairs:
    pairs = random_pairs(seed=3)
    return Pairs(pairs.log_prob, replace(pairs.batch, reward=values))


def published(better: Tensor, worse: Tensor, apart: Tensor, beta: float, scale: float) -> Tensor:
    """Compute the loss of a pair from its two log-ratios, without any code of the project."""
    return torch.log1p(torch.exp(-(beta * better - beta * worse - scale * apart)))


def test_a_pair_by_hand() -> None:
    log_prob = torch.tensor([[-1.0, -3.0]], dtype=torch.float64)
    seen = batch_of_pairs(torch.tensor([[0, 1]]), torch.tensor([-2.0, -2.0], dtype=torch.float64))
    loss, watch = StepApo(beta=0.5, scale=2.0)(log_prob, replace(seen, reward=torch.tensor([0.75, 0.5])))
    # the margin is 0.5 * ((-1 + 2) - (-3 + 2)) = 1, and the steps are apart by 2 * 0.25
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-0.5))])
    assert watch["pair_margin"].tolist() == [1.0]


@pytest.mark.parametrize("case", ["equal values", "no scale"])
def test_steps_of_equal_value_or_no_scale_give_dpo(case: str) -> None:
    pairs = valued(torch.full((12,), 0.4, dtype=torch.float64)) if case == "equal values" else valued()
    mine = StepApo(beta=0.3, sft=0.2, scale=1.0 if case == "equal values" else 0.0)
    for got, wanted in zip(as_it_is(mine, pairs), as_it_is(Dpo(beta=0.3, sft=0.2), pairs), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_it_is_the_formula_of_an_independent_reference() -> None:
    pairs = valued()
    assert pairs.batch.reference is not None and pairs.batch.pairs is not None
    loss, gradient = as_it_is(StepApo(beta=0.7, scale=1.5), pairs)
    ratio = pairs.log_prob - pairs.batch.reference
    expected = []
    for number, (first, second) in enumerate(pairs.batch.pairs.tolist()):
        better, worse = (row.sum() for row in pairs.answers(ratio, number))
        expected.append(published(better, worse, VALUES[first] - VALUES[second], 0.7, 1.5))
    whole = torch.stack(expected)
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradient, torch.autograd.grad(whole.sum(), pairs.log_prob)[0], rtol=1e-12, atol=1e-12)


def test_its_gradient_agrees_with_finite_differences() -> None:
    seen = batch_of_pairs(PAIRS, reward=REWARDS[PAIRS].flatten())
    log_prob = torch.randn(len(PAIRS), 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss(values: Tensor) -> Tensor:
        return StepApo(scale=0.8)(values, seen)[0]

    assert torch.autograd.gradcheck(loss, log_prob.requires_grad_())


def test_a_pair_that_is_further_apart_in_value_has_a_larger_gradient() -> None:
    log_prob = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    seen = batch_of_pairs(torch.tensor([[0, 1]] * 3), torch.zeros(2, dtype=torch.float64))
    loss, _ = StepApo(beta=1.0)(log_prob, replace(seen, reward=torch.tensor([0.1, 0.0, 0.5, 0.0, 1.0, 0.0])))
    (gradient,) = torch.autograd.grad(loss.sum(), log_prob)
    assert gradient[:, 0].tolist() == pytest.approx([-1 / (1 + math.exp(-apart)) for apart in (0.1, 0.5, 1.0)])


def test_with_labels_drawn_by_bradley_terry_the_optimum_has_the_values_added_to_the_margin() -> None:
    """A pair is drawn in both orders, with chance sigmoid(g) of the first. The best margin is then known.

    The loss of the pair in its order with margin m and difference d is -log sigmoid(m - d); in the other order the
    margin and the difference have the other sign. The mean is least at m = d + g.
    """
    apart = REWARDS[0] - REWARDS[1]
    chance = torch.sigmoid(torch.tensor(0.4, dtype=torch.float64))
    both = torch.tensor([[0, 1], [1, 0]])
    value = REWARDS[both].flatten()
    policy = partial(losses, StepApo(beta=1.0), pairs=both, reference=torch.zeros(4, dtype=torch.float64), reward=value)
    logits = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        loss = (torch.stack([chance, 1 - chance]) * policy(logits)).sum()
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 2.0 * gradient).detach().requires_grad_()
    assert float((logits[0] - logits[1]).detach()) == pytest.approx(float(apart) + 0.4, abs=1e-6)


def test_an_unknown_reward_is_refused_in_one_line() -> None:
    pairs = valued()
    with pytest.raises(UserError, match=r"objective\.by: no reward is called worth"):
        as_it_is(StepApo(by="worth"), pairs)


def test_a_negative_scale_is_refused() -> None:
    with pytest.raises(UserError, match=r"objective\.scale"):
        load_recipe("cpl", ["objective.scale=-1"])
