"""SAPO, whose gate replaces the clip: the published loss, the first step, and the closing of the gate."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from models.parts.objective.sapo import Sapo
from tests.support.random_rounds import assert_same, completion_weights, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def published(positive: float, negative: float, ceiling: float, beta: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of SAPO in TRL 1.16 (loss_type="sapo", token_truncate, KL term k3)."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        table, held, advantage = padded(log_prob), mask(), padded(seen.advantage)
        ratio = (table - padded(seen.old)).exp()
        temperature = torch.where(advantage > 0, positive, negative).double()
        each = -torch.sigmoid(temperature * (ratio - 1)) * 4 / temperature * advantage
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        assert seen.reference is not None
        apart = padded(seen.reference) - table
        each = each + beta * (apart.exp() - apart - 1)
        return ((each * held).sum(-1) / held.sum(-1)).mean()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_are_the_published_ones(seed: int) -> None:
    objective = Sapo(tau_positive=0.7, tau_negative=1.6, kl=0.03, importance_ceiling=1.2)
    assert_same(objective, published(0.7, 1.6, 1.2, 0.03), seed, completion_weights())


@pytest.mark.parametrize("tau", [0.1, 1.0, 30.0])
def test_on_policy_it_is_the_policy_gradient_whatever_the_temperature(tau: float) -> None:
    log_prob, seen = random_round(3)
    seen = replace(seen, old=log_prob, behaviour=log_prob)
    gradient = gradient_of(Sapo(tau_positive=tau, tau_negative=tau), log_prob, seen)
    torch.testing.assert_close(gradient, gradient_of(Reinforce(), log_prob, seen), rtol=1e-12, atol=1e-12)
    _, watch = Sapo(tau_positive=tau, tau_negative=tau)(log_prob, seen)
    torch.testing.assert_close(watch["gate"], torch.ones_like(log_prob))


def test_a_gate_that_never_closes_is_the_surrogate_without_a_clip() -> None:
    log_prob, seen = random_round(4)
    gradient = gradient_of(Sapo(tau_positive=1e-4, tau_negative=1e-4), log_prob, seen)
    without = gradient_of(Grpo(kl=0.0, clip_low=None, clip_high=None), log_prob, seen)
    torch.testing.assert_close(gradient, without, rtol=1e-6, atol=1e-6)


def test_the_gate_closes_by_4_p_times_1_less_p_and_sooner_where_the_advantage_is_negative() -> None:
    old = numbers(-3.0, -3.0)
    seen = make_batch(numbers(1.0, -1.0), None, old)
    moved = old + numbers(2.0, 2.0).log()
    share = torch.sigmoid(numbers(1.0, 3.0))
    expected = -numbers(1.0, -1.0) * 2.0 * 4 * share * (1 - share)
    torch.testing.assert_close(gradient_of(Sapo(tau_negative=3.0), moved, seen), expected)
    assert expected[1] < -expected[0]
