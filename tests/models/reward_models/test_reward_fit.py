"""The Bradley-Terry fit: loss and gradient by hand, independence of the cut, reproducibility, and refused input."""

import copy
import math

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.reward_models.fit import (
    Pair,
    RewardModelSettings,
    accumulate,
    bradley_terry_loss,
    fit_reward_model,
    score_pairs,
)
from tests.support.tiny_models import leave_room_for
from tests.support.tiny_reward_models import FAST, tiny_reward_model, toy_pairs


def test_loss_and_gradient_are_those_of_a_hand_computation() -> None:
    chosen = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    rejected = torch.tensor([1.0 - math.log(3), math.log(3)], dtype=torch.float64, requires_grad=True)
    loss = bradley_terry_loss(chosen, rejected)  # margins log 3 and -log 3: probabilities 3/4 and 1/4
    torch.testing.assert_close(loss, torch.tensor([math.log(4 / 3), math.log(4)], dtype=torch.float64))
    loss.sum().backward()
    torch.testing.assert_close(chosen.grad, torch.tensor([-0.25, -0.75], dtype=torch.float64))
    assert chosen.grad is not None
    torch.testing.assert_close(rejected.grad, -chosen.grad)


def test_margin_and_centring_enter_as_their_formula_says() -> None:
    chosen, rejected = torch.tensor([2.0]).double(), torch.tensor([0.5]).double()
    shifted = bradley_terry_loss(chosen, rejected, margin=1.5, centring=0.1)
    torch.testing.assert_close(shifted, torch.tensor([math.log(2) + 0.1 * 2.5**2]).double())


def test_identical_answers_give_log_2_and_no_gradient() -> None:
    model = tiny_reward_model(torch.float64)
    watched = accumulate(model, [Pair([5, 6], [7, 1], [7, 1])], RewardModelSettings())
    assert float(watched["loss"]) == pytest.approx(math.log(2), abs=1e-12)
    assert watched["accuracy"] == 0.5 and watched["margin"] == 0.0
    assert max(float(p.grad.abs().max()) for p in model.parameters() if p.grad is not None) < 1e-12


@pytest.mark.parametrize("budget", [14, 20, 64])
def test_loss_and_gradient_do_not_depend_on_the_cut(budget: int) -> None:
    pairs = toy_pairs(13, seed=1)
    whole, cut = tiny_reward_model(torch.float64), tiny_reward_model(torch.float64)
    at_once = accumulate(whole, pairs, RewardModelSettings(centring=0.01, token_budget=10**6))
    many = accumulate(cut, pairs, RewardModelSettings(centring=0.01, token_budget=budget))
    torch.testing.assert_close(many, at_once, atol=1e-12, rtol=0.0)
    for a, b in zip(whole.parameters(), cut.parameters(), strict=True):
        # transformers rounds norms to float32. The cut decides how often a shared prompt is rounded.
        torch.testing.assert_close(a.grad, b.grad, atol=1e-8, rtol=1e-6)


@pytest.mark.thorough
def test_a_separable_rule_is_learned_and_holds_on_new_pairs() -> None:
    model, reported = tiny_reward_model(), []
    settings = RewardModelSettings(steps=250, batch_pairs=64, optimiser=FAST)
    last = fit_reward_model(
        model, toy_pairs(8000, seed=2), settings, seed=0, report=lambda step, metrics: reported.append((step, metrics))
    )
    assert [step for step, _ in reported] == list(range(10, 251, 10))
    losses = [metrics["loss"] for _, metrics in reported]
    assert last == reported[-1][1]
    assert sum(losses[-5:]) / 5 < 0.2 < losses[0], "of five batches: that of a single batch hangs on its pairs"
    chosen, rejected = score_pairs(model, toy_pairs(300, seed=3))
    assert float((chosen > rejected).float().mean()) > 0.9


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    def fitted(seed: int) -> Tensor:
        model = tiny_reward_model()
        fit_reward_model(model, toy_pairs(40, 4), RewardModelSettings(steps=4, batch_pairs=8), seed=seed)
        weight: Tensor = model.score.weight.detach()
        return weight

    assert torch.equal(fitted(1), fitted(1))
    assert not torch.equal(fitted(1), fitted(2))


def test_every_pair_is_seen_once_an_epoch() -> None:
    assert RewardModelSettings(epochs=2, batch_pairs=10).updates(25) == 5
    assert RewardModelSettings(epochs=1, batch_pairs=64).updates(25) == 1
    assert RewardModelSettings(steps=7).updates(25) == 7


def test_what_cannot_be_fitted_is_refused_in_one_line_and_moves_nothing() -> None:
    model = tiny_reward_model()
    with pytest.raises(UserError, match="no preference pairs"):
        fit_reward_model(model, [], RewardModelSettings(), seed=0)
    with pytest.raises(UserError, match="67 tokens, the model takes 64"):
        fit_reward_model(model, [Pair([5] * 60, [6] * 7, [7])], RewardModelSettings(), seed=0)
    with torch.no_grad():
        model.score.weight.fill_(float("inf"))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(UserError, match="the loss is not finite"):
        fit_reward_model(model, toy_pairs(4, 5), RewardModelSettings(steps=1), seed=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_step_that_runs_out_of_memory_is_made_again_and_is_the_same_step() -> None:
    undisturbed, model = tiny_reward_model(torch.float64), tiny_reward_model(torch.float64)
    settings = RewardModelSettings(steps=2, batch_pairs=8, token_budget=256)
    pairs = toy_pairs(8, seed=1)
    fit_reward_model(undisturbed, pairs, settings, seed=0)
    leave_room_for(model, 40)
    with pytest.warns(UserWarning, match="reward model, update 0: out of memory with rows of 256 tokens"):
        fit_reward_model(model, pairs, settings, seed=0)
    torch.testing.assert_close(model.state_dict(), undisturbed.state_dict(), rtol=1e-6, atol=1e-8)
