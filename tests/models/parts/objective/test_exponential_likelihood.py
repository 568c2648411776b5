"""Exponentially weighted likelihood: the weight and its ceiling, and the optimum on given data."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.exponential_likelihood import ExponentialLikelihood
from models.parts.rewards.shaping.of_origin import OfOrigin
from tests.support.tiny_batches import make_batch, numbers
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def batch_of(advantage: Tensor) -> TokenBatch:
    nothing = torch.zeros(len(advantage), dtype=torch.float64)
    return make_batch(advantage, nothing, nothing)


def gradient_of(objective: ExponentialLikelihood, log_prob: Tensor, advantage: Tensor) -> Tensor:
    log_prob = log_prob.clone().requires_grad_()
    return torch.autograd.grad(objective(log_prob, batch_of(advantage))[0].sum(), log_prob)[0]


def test_the_weight_is_the_exponential_of_reward_over_beta() -> None:
    gradient = gradient_of(ExponentialLikelihood(beta=0.5), numbers(-1.0, -7.0, -2.0), numbers(1.0, 0.0, -0.5))
    torch.testing.assert_close(gradient, -numbers(math.exp(2), 1.0, math.exp(-1)))


def test_where_no_answer_is_better_than_another_it_is_supervised_learning() -> None:
    log_prob = numbers(-1.0, -3.0)
    loss, _ = ExponentialLikelihood(beta=2.0)(log_prob, batch_of(numbers(0.0, 0.0)))
    torch.testing.assert_close(loss, -log_prob)


def test_no_weight_is_above_the_ceiling() -> None:
    gradient = gradient_of(ExponentialLikelihood(beta=0.1, ceiling=5.0), numbers(-1.0, -1.0), numbers(9.0, 0.1))
    torch.testing.assert_close(gradient, -numbers(5.0, math.e))


def test_what_it_learns_from_data_is_the_best_policy_near_the_data() -> None:
    """mu is the data's distribution. The expected gradient is zero at pi* = mu exp(r / beta) / Z, but not at mu."""
    data, reward, beta = numbers(0.5, 0.3, 0.2), numbers(1.0, 0.0, -1.0), 0.7
    best = (data.log() + reward / beta).softmax(0)
    for logits, vanishes in [(best.log(), True), (data.log(), False)]:
        logits = logits.clone().requires_grad_()
        losses, _ = ExponentialLikelihood(beta=beta)(logits.log_softmax(0), batch_of(reward))
        (gradient,) = torch.autograd.grad((data * losses).sum(), logits)
        assert (gradient.abs().max() < 1e-12) == vanishes


def test_sound_and_flawed_demonstrations_differ_in_weight_by_the_exponential_of_their_rewards() -> None:
    rollouts = [
        replace(rollout, source=replace(rollout.source, origin="demonstration", flaw=flaw))
        for rollout, flaw in zip(scored([0.0, 0.0], [1, 1]).rollouts, ("", "slip"), strict=True)
    ]
    rewards = OfOrigin(demonstration=1.0, flawed=0.1)(make_resources(), rollouts).double()
    _, watch = ExponentialLikelihood(beta=0.3)(numbers(-1.0, -1.0), batch_of(rewards))
    sound, flawed = watch["likelihood_weight"].tolist()
    assert sound / flawed == pytest.approx(math.exp(0.9 / 0.3))


def test_what_is_watched_is_one_value_a_token_without_gradient() -> None:
    log_prob = numbers(-1.0, -2.0).requires_grad_()
    _, watch = ExponentialLikelihood()(log_prob, batch_of(numbers(1.0, 0.0)))
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
