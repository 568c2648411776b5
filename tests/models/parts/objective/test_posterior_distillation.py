"""Posterior distillation: its weights, its gradient, and the posterior as its minimum for any sampler."""

import math

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.dpo import Dpo
from models.parts.objective.posterior_distillation import PosteriorDistillation, log_posterior_weights
from tests.support.tiny_batches import make_batch

BETA = 0.5
REWARDS = torch.tensor([1.0, 0.0, 0.3, 0.9, 0.2], dtype=torch.float64)
PRIOR = torch.tensor([-1.0, -0.5, -2.0, -1.5, -0.7], dtype=torch.float64)
SAMPLER = torch.tensor([-1.2, -0.9, -1.0, -2.5, -0.3], dtype=torch.float64)
POLICY = torch.tensor([-0.8, -1.1, -1.7, -2.0, -0.4], dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 0, 1, 1])


def batch(
    rewards: Tensor = REWARDS, prior: Tensor = PRIOR, sampler: Tensor = SAMPLER, groups: Tensor = GROUPS
) -> TokenBatch:
    """Return completions of one token each in a group of three and a group of two."""
    return make_batch(
        advantage=torch.zeros_like(rewards),
        behaviour=sampler,
        old=sampler,
        reference=prior,
        reward=rewards,
        group=groups,
    )


def gradient_of(log_prob: Tensor, seen: TokenBatch) -> Tensor:
    log_prob = log_prob.clone().requires_grad_()
    loss, _ = PosteriorDistillation(beta=BETA)(log_prob, seen)
    return torch.autograd.grad(loss.sum(), log_prob)[0]


def test_the_weights_of_every_group_sum_to_one() -> None:
    weights = log_posterior_weights(batch(), BETA).exp()
    assert [float(weights[:3].sum()), float(weights[3:].sum())] == pytest.approx([1.0, 1.0])


def test_a_weight_by_hand() -> None:
    weights = log_posterior_weights(batch(), BETA).exp()
    # before normalisation: exp(-1.5 + 0.9 / 0.5 + 2.5) = e^2.8 and exp(-0.7 + 0.2 / 0.5 + 0.3) = 1
    assert float(weights[3]) == pytest.approx(math.exp(2.8) / (math.exp(2.8) + 1.0))


def test_the_gradient_is_the_policys_weight_less_the_posteriors_weight() -> None:
    """The expected gradient is computed with plain numbers, one group at a time."""
    wanted = []
    for members in ([0, 1, 2], [3, 4]):
        posterior = [math.exp(PRIOR[i] + REWARDS[i] / BETA) / math.exp(SAMPLER[i]) for i in members]
        own = [math.exp(POLICY[i]) / math.exp(SAMPLER[i]) for i in members]
        wanted += [b / sum(own) - a / sum(posterior) for a, b in zip(posterior, own, strict=True)]
    torch.testing.assert_close(gradient_of(POLICY, batch()), torch.tensor(wanted, dtype=torch.float64))


def test_on_policy_the_baseline_is_one_over_the_size_of_the_group() -> None:
    weights = log_posterior_weights(batch(), BETA).exp()
    sizes = torch.tensor([3.0, 3.0, 3.0, 2.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(gradient_of(SAMPLER, batch()), 1.0 / sizes - weights)


def test_loss_and_gradient_are_zero_where_the_policy_is_the_posterior_whoever_sampled() -> None:
    posterior = PRIOR + REWARDS / BETA
    policy = posterior - torch.tensor([1.3, 1.3, 1.3, -0.2, -0.2], dtype=torch.float64)  # any constant per group
    loss, _ = PosteriorDistillation(beta=BETA)(policy, batch())
    torch.testing.assert_close(loss, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(gradient_of(policy, batch()), torch.zeros(5, dtype=torch.float64))
    assert PosteriorDistillation(beta=BETA)(POLICY, batch())[0].min() > 0


def test_descent_reaches_the_posterior_of_a_bandit() -> None:
    groups = torch.zeros(5, dtype=torch.long)
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        loss, _ = PosteriorDistillation(beta=BETA)(logits.log_softmax(0), batch(groups=groups))
        (gradient,) = torch.autograd.grad(loss.sum(), logits)
        logits = (logits - gradient).detach().requires_grad_()
    posterior = (PRIOR + REWARDS / BETA).softmax(0)
    torch.testing.assert_close(logits.softmax(0), posterior, atol=1e-6, rtol=0.0)


def test_two_completions_of_which_one_is_certain_are_dpo_with_the_sampler_as_reference() -> None:
    sampler, policy = SAMPLER[3:], POLICY[3:]
    seen = batch(torch.tensor([900.0, 0.0], dtype=torch.float64), PRIOR[3:], sampler, torch.zeros(2, dtype=torch.long))
    loss, _ = PosteriorDistillation(beta=BETA)(policy, seen)
    pair = make_batch(
        advantage=sampler,
        behaviour=sampler,
        old=sampler,
        reference=sampler,
        pairs=torch.tensor([[0, 1]]),
    )
    torch.testing.assert_close(loss, Dpo(beta=1.0)(policy[None], pair)[0])


def test_a_posterior_of_one_completion_leaves_no_number_undefined() -> None:
    seen = batch(torch.tensor([5e4, 0.0, 0.0, 5e4, 0.0], dtype=torch.float64))
    loss, watch = PosteriorDistillation(beta=1e-3)(POLICY, seen)
    assert torch.isfinite(loss).all() and watch["effective_completions"].tolist() == pytest.approx([1.0, 1.0])
