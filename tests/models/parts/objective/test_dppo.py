"""The trust region of probabilities: the published losses, and the tokens that leave the gradient."""

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.cispo import Cispo
from models.parts.objective.dppo import Dppo, binary_kl
from tests.support.random_rounds import TOKENS, assert_same, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def prime_rl(low: float, high: float, drift: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the default loss of prime-rl (default_loss_fn of trainer/rl/loss.py), reimplemented."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        table, engine, advantage, held = (
            padded(x) for x in (log_prob, seen.behaviour, seen.advantage, 1 + 0 * log_prob)
        )
        apart = table - engine
        difference = table.exp() - engine.exp()
        invalid = torch.where(advantage > 0, difference > high, difference < -low)
        each = -((held > 0) & ~invalid).double() * advantage * apart.exp() + drift * held * apart**2
        return each.sum() / held.sum()

    return loss


def authors(low: float, high: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return DPPO-Binary-KL of the authors' code (dppo_binary_kl in core_algos.py), with token mean, reimplemented."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        table, engine, advantage, held = padded(log_prob), padded(seen.behaviour), padded(seen.advantage), mask()
        chance, drawn = table.exp(), engine.exp()
        kl = drawn * (engine - table) + (1 - drawn) * torch.log((1.0 - drawn + 1e-8) / (1.0 - chance + 1e-8))
        invalid = torch.where(advantage > 0, (kl > high) & (chance > drawn), (kl > low) & (chance < drawn))
        ratio = (table - engine).exp().clamp(max=ceiling).detach()
        return (-advantage * ratio * (1.0 - invalid.double()) * table * held).sum() / held.sum()

    return loss


SHARES = torch.full((TOKENS,), 1 / TOKENS, dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_are_those_of_prime_rl(seed: int) -> None:
    objective = Dppo(region_low=0.05, region_high=0.08, drift=0.02)
    assert 0 < objective(*random_round(seed))[1]["masked_share"].sum() < TOKENS
    assert_same(objective, prime_rl(0.05, 0.08, 0.02), seed, SHARES)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_with_kl_and_a_ceiling_is_that_of_the_authors_code(seed: int) -> None:
    """The authors' loss contains the log-prob and this one the ratio. The values differ, the gradients do not."""
    log_prob, seen = random_round(seed)
    objective = Dppo(measure="kl", region_low=0.01, region_high=0.02, importance_ceiling=1.1, drift=0.0)
    assert 0 < objective(log_prob, seen)[1]["masked_share"].sum() < TOKENS
    asked = log_prob.clone().requires_grad_()
    (theirs,) = torch.autograd.grad(authors(0.01, 0.02, 1.1)(asked, seen), asked)
    torch.testing.assert_close(gradient_of(objective, log_prob, seen) / TOKENS, theirs, rtol=0, atol=1e-12)


def test_a_rare_token_may_multiply_and_a_likely_one_may_not_fall() -> None:
    """The ratios are 10 and 0.75, but the probabilities differ by 0.009 and 0.225. Only the second token is masked."""
    behaviour = numbers(0.001, 0.9).log()
    seen = make_batch(numbers(1.0, -1.0), behaviour, behaviour)
    moved = numbers(0.01, 0.675).log()
    _, watch = Dppo()(moved, seen)
    assert watch["masked_share"].tolist() == [0.0, 1.0]
    torch.testing.assert_close(gradient_of(Dppo(drift=0.0), moved, seen), -numbers(10.0, 0.0))


@pytest.mark.parametrize(
    ("advantage", "to", "left"), [(1, 0.8, 1), (1, 0.2, 0), (-1, 0.2, 1), (-1, 0.8, 0), (0, 0.2, 1)]
)
@pytest.mark.parametrize("measure", ["total_variation", "kl"])
def test_only_what_moves_in_the_direction_of_its_advantage_is_left_out(
    advantage: int, to: float, left: int, measure: Literal["total_variation", "kl"]
) -> None:
    behaviour = numbers(0.5).log()
    _, watch = Dppo(measure=measure)(numbers(to).log(), make_batch(numbers(advantage), behaviour, behaviour))
    assert watch["masked_share"].tolist() == [left]  # a move by 0.3 in probability, or 0.22 nats


def test_within_a_region_without_end_it_is_the_policy_gradient_of_the_ratio() -> None:
    log_prob, seen = random_round(3)
    wide = Dppo(region_low=1.0, region_high=1.0, drift=0.0)
    unbounded = Cispo(clip_high=None, importance_ceiling=None)
    torch.testing.assert_close(gradient_of(wide, log_prob, seen), gradient_of(unbounded, log_prob, seen))


def test_the_drift_pulls_back_to_the_sampler_also_what_is_left_out() -> None:
    behaviour = numbers(0.5).log()
    seen = make_batch(numbers(1.0), behaviour, behaviour)
    gradient = gradient_of(Dppo(drift=0.25), numbers(0.9).log(), seen)
    torch.testing.assert_close(gradient, 0.5 * numbers(math.log(1.8)))


def test_the_binary_kl_by_hand() -> None:
    actual = binary_kl(numbers(0.25).log(), numbers(0.5).log())
    torch.testing.assert_close(actual, 0.5 * numbers(math.log(4 / 3)), rtol=0, atol=1e-7)
    assert binary_kl(numbers(0.0), numbers(0.0)).tolist() == [0.0]
