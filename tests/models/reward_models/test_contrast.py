"""Contrastive terms in the loss of a reward model: values and gradients by hand, independence of the cut, and a fit."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from models.reward_models.contrast import (
    ContrastSettings,
    batch_contrast,
    batch_gradient,
    goal_contrast,
    spaced,
)
from models.reward_models.fit import RewardModelSettings, accumulate, both_answers, fit_reward_model
from models.reward_models.goal import goal_of, nearness, states_of
from models.reward_models.model import score, score_and_states
from tests.support.device_here import DEVICE
from tests.support.tiny_reward_models import FAST, tiny_reward_model, toy_pairs


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def cosine(left: Tensor, right: Tensor) -> float:
    return float(left @ right / (left.norm() * right.norm()))


def random_states(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_contrast_of_a_pair_by_hand() -> None:
    chosen = torch.tensor([[2.0, 0.0], [0.0, 3.0]]).double()  # cosine 1 of each state with itself, 0 with the other
    rejected = torch.tensor([[-1.0, 0.0]]).double()  # cosines -1 and 0 with the chosen states
    towards = (2 * sigmoid(1) + sigmoid(0)) / 3
    away = (sigmoid(-1) + sigmoid(0)) / 2
    assert float(goal_contrast(chosen, rejected)) == pytest.approx(-math.log(towards) - math.log(1 - away), abs=1e-12)


def test_the_contrast_of_a_pair_is_the_mean_over_all_that_could_be_sampled() -> None:
    chosen, rejected = random_states(5, 4), random_states(3, 4, seed=1)
    later = [sigmoid(cosine(chosen[s], chosen[g])) for s in range(5) for g in range(s, 5)]
    other = [sigmoid(cosine(s, r)) for s, r in itertools.product(chosen, rejected)]
    expected = -math.log(sum(later) / len(later)) - math.log(1 - sum(other) / len(other))
    assert float(goal_contrast(chosen, rejected)) == pytest.approx(expected, abs=1e-12)
    assert torch.autograd.gradcheck(
        goal_contrast, (chosen.requires_grad_(), rejected.requires_grad_()), fast_mode=False
    )


def test_the_contrast_of_a_pair_is_least_where_it_goes_one_way_and_the_other_the_opposite() -> None:
    one_way = torch.ones(4, 3).double()
    least = float(goal_contrast(one_way, -one_way))
    assert least == pytest.approx(-2 * math.log(sigmoid(1)))
    assert float(goal_contrast(one_way, one_way)) == pytest.approx(-math.log(sigmoid(1)) - math.log(sigmoid(-1)))
    for seed in range(5):
        assert least < float(goal_contrast(random_states(4, 3, seed=seed), random_states(4, 3, seed=seed + 9)))


def test_states_are_evenly_spaced_and_the_last_one_is_among_them() -> None:
    assert spaced(3, 8) == [0, 1, 2] and spaced(8, 8) == list(range(8))
    assert spaced(9, 3) == [0, 4, 8] and spaced(1000, 2) == [0, 999]
    assert len(set(spaced(65, 64))) == 64


def reference_of_batch(held: Tensor, settings: ContrastSettings, seed: int) -> float:
    kept = torch.rand(2, *held.shape, generator=torch.Generator().manual_seed(seed)) >= settings.dropout
    left, right = (held * kept[view].double() for view in range(2))
    total = 0.0
    for i in range(len(held)):
        odds = [math.exp(cosine(left[i], right[j]) / settings.temperature) for j in range(len(held))]
        total -= math.log(odds[i] / sum(odds))
    return total / len(held)


@pytest.mark.parametrize("of", ["answers", "differences"])
def test_the_contrast_of_a_batch_is_its_formula(of: str) -> None:
    states = random_states(5, 2, 16)
    settings = ContrastSettings(of=of, dropout=0.2, temperature=0.3)  # type: ignore[arg-type]
    held = states.reshape(10, 16) if of == "answers" else states[:, 0] - states[:, 1]
    loss, gradient = batch_gradient(states, settings, 7)
    assert float(loss) == pytest.approx(reference_of_batch(held, settings, 7), abs=1e-9)
    step = 1e-6 * random_states(5, 2, 16, seed=3)
    moved = batch_contrast(states + step, settings, 7) - batch_contrast(states - step, settings, 7)
    assert float(moved) / 2 == pytest.approx(float((gradient * step).sum()), rel=1e-5)


def test_what_is_all_alike_cannot_be_told_apart_and_what_is_alone_need_not() -> None:
    few = ContrastSettings(of="answers", dropout=1e-9)
    alike = torch.ones(3, 2, 8).double()
    assert float(batch_contrast(alike, few, 0)) == pytest.approx(math.log(6))
    alone = ContrastSettings(of="differences", dropout=1e-9)
    assert float(batch_contrast(random_states(1, 2, 8), alone, 0)) == pytest.approx(0.0, abs=1e-12)
    apart = torch.eye(8).double().view(4, 2, 8)
    assert float(batch_contrast(apart, few, 0)) == pytest.approx(math.log(1 + 7 * math.exp(-20)), rel=1e-6)


def gradients(model: torch.nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_without_weight_the_plain_loss_and_gradient_are_left_bit_for_bit() -> None:
    pairs, plain, beside = toy_pairs(9, seed=1), tiny_reward_model(), tiny_reward_model()
    alone = accumulate(plain, pairs, RewardModelSettings(centring=0.01))
    nothing = accumulate(beside, pairs, RewardModelSettings(centring=0.01, contrast=ContrastSettings()))
    assert alone == nothing
    assert all(torch.equal(a, b) for a, b in zip(gradients(plain), gradients(beside), strict=True))


@pytest.mark.parametrize("budget", [14, 64])
def test_contrasts_do_not_depend_on_the_cut(budget: int) -> None:
    pairs = toy_pairs(13, seed=1)
    contrast = ContrastSettings(goal=0.5, states=2, batch=0.7)
    whole, cut = tiny_reward_model(torch.float64), tiny_reward_model(torch.float64)
    at_once = accumulate(whole, pairs, RewardModelSettings(contrast=contrast, token_budget=10**6), seed=5)
    many = accumulate(cut, pairs, RewardModelSettings(contrast=contrast, token_budget=budget), seed=5)
    torch.testing.assert_close(many, at_once, atol=1e-6, rtol=0.0)
    for a, b in zip(gradients(whole), gradients(cut), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_the_gradient_is_that_of_the_whole_loss_differentiated_at_once() -> None:
    pairs = toy_pairs(6, seed=2)
    contrast = ContrastSettings(goal=0.5, batch=0.7)
    by_rows, at_once = tiny_reward_model(torch.float64), tiny_reward_model(torch.float64)
    watched = accumulate(by_rows, pairs, RewardModelSettings(contrast=contrast, token_budget=20), seed=5)
    scores, states = score_and_states(at_once, both_answers(pairs))
    preference = -torch.nn.functional.logsigmoid(scores[::2] - scores[1::2]).mean()
    goal = torch.stack([goal_contrast(*states[at : at + 2]) for at in range(0, 12, 2)]).mean()
    last = torch.stack([row[-1] for row in states]).view(6, 2, -1)
    batch = batch_contrast(last, contrast, 5)
    total = preference + 0.5 * goal + 0.7 * batch
    total.backward()
    assert float(watched["loss"]) == pytest.approx(float(total.detach()), abs=1e-6)
    assert float(watched["goal_contrast"]) == pytest.approx(float(goal.detach()), abs=1e-6)
    assert float(watched["batch_contrast"]) == pytest.approx(float(batch.detach()), abs=1e-6)
    for a, b in zip(gradients(by_rows), gradients(at_once), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_states_and_scores_are_those_of_reading_each_by_itself() -> None:
    pairs, model = toy_pairs(4, seed=3), tiny_reward_model(torch.float64)
    both = both_answers(pairs)
    scores, states = score_and_states(model, both)
    torch.testing.assert_close(scores, score(model, both), atol=0, rtol=0)
    for place, (prompt, completion) in enumerate(zip(both.prompts, both.completions, strict=True)):
        ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
        plain = model.model(ids).last_hidden_state[0, len(prompt) :]
        torch.testing.assert_close(states[place], plain, atol=1e-6, rtol=1e-5)


@pytest.mark.rotating(of=6)
def test_a_fit_with_it_lowers_the_contrast_of_new_pairs_and_the_goal_tells_good_from_bad() -> None:
    left, held_out = {}, both_answers(toy_pairs(40, seed=3))
    for weight in (0.0, 0.5):
        model = tiny_reward_model()
        settings = RewardModelSettings(steps=30, batch_pairs=16, optimiser=FAST, contrast=ContrastSettings(goal=weight))
        fit_reward_model(model, toy_pairs(600, seed=2), settings, seed=0)
        states = states_of(model, held_out)
        left[weight] = sum(float(goal_contrast(*states[at : at + 2])) for at in range(0, 80, 2)) / 40
    assert left[0.5] < left[0.0] - 0.05
    goal = goal_of(model, held_out.take(range(0, 80, 2)))
    last = torch.stack([row[-1] for row in nearness(states, goal)]).view(-1, 2)
    assert float(last.abs().max()) <= 1 + 1e-5
    assert float((last[:, 0] > last[:, 1]).double().mean()) > 0.6
