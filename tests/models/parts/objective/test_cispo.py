"""Tests of CISPO: the published loss and gradient, and the bounded weight of tokens that a clip would drop."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.cispo import Cispo
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from tests.support.random_rounds import assert_same, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def published(high: float, ceiling: float, beta: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return CISPO's loss in TRL 1.16 (loss_type="cispo", token_truncate, KL term k3), reimplemented for one batch."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        table, held = padded(log_prob), mask()
        ratio = (table - padded(seen.old)).exp()
        each = -torch.clamp(ratio, max=high).detach() * padded(seen.advantage) * table
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        assert seen.reference is not None
        apart = padded(seen.reference) - table
        each = each + beta * (apart.exp() - apart - 1)
        return (each * held).sum() / held.sum()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_are_the_published_ones(seed: int) -> None:
    assert_same(Cispo(clip_high=0.3, kl=0.05, importance_ceiling=1.2), published(1.3, 1.2, 0.05), seed)


def test_a_token_that_the_surrogate_would_drop_keeps_its_gradient_under_a_bounded_weight() -> None:
    old = numbers(-3.0, -3.0, -3.0)
    moved, seen = old + numbers(9.0, 1.1, 0.1).log(), make_batch(numbers(1.0, 1.0, -1.0), None, old)
    torch.testing.assert_close(gradient_of(Grpo(kl=0.0), moved, seen), -numbers(0.0, 1.1, 0.0))
    torch.testing.assert_close(gradient_of(Cispo(clip_high=4.0), moved, seen), -numbers(5.0, 1.1, -0.1))
    torch.testing.assert_close(gradient_of(Cispo(clip_high=4.0, clip_low=0.2), moved, seen), -numbers(5.0, 1.1, -0.8))
    _, watch = Cispo(clip_high=4.0)(moved, seen)
    assert watch["clipped_share"].tolist() == [1.0, 0.0, 0.0]


def test_without_bounds_its_gradient_is_that_of_the_ratio_times_the_advantage() -> None:
    log_prob, seen = random_round(3, move=1.5)
    gradient = gradient_of(Cispo(clip_high=None), log_prob, seen)
    torch.testing.assert_close(gradient, gradient_of(Grpo(kl=0.0, clip_low=None, clip_high=None), log_prob, seen))


def test_with_no_room_at_all_it_is_reinforce() -> None:
    log_prob, seen = random_round(4)
    seen = replace(seen, behaviour=seen.old)
    gradient = gradient_of(Cispo(clip_low=0.0, clip_high=0.0), log_prob, seen)
    torch.testing.assert_close(gradient, gradient_of(Reinforce(), log_prob, seen))


def test_no_gradient_flows_through_the_weight() -> None:
    log_prob, seen = random_round(5)
    gradient = gradient_of(Cispo(clip_high=None, importance_ceiling=None), log_prob, seen)
    weight = torch.exp(log_prob - seen.behaviour)  # both corrections together are pi / mu
    torch.testing.assert_close(gradient, -weight * seen.advantage, rtol=1e-12, atol=1e-12)
