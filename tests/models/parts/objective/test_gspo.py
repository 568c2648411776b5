"""The importance ratio of whole completions: published losses of GSPO and GSPO-token, the clip, and the first step."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.gspo import Gspo, GspoToken
from tests.support.random_rounds import assert_same, completion_weights, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers

WIDE: dict[str, Any] = {"clip_low": 0.2, "clip_high": 0.15}


def published(clip_low: float, clip_high: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return GSPO's loss in TRL 1.16 (importance_sampling_level="sequence", loss_type="grpo", token_truncate)."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        held, table = mask(), padded(log_prob)
        lengths = held.sum(-1)
        mean = ((table - padded(seen.old)) * held).sum(-1, keepdim=True) / lengths[:, None]
        coefficient = mean.exp()
        advantage = padded(seen.advantage)[:, :1]
        kept = torch.clamp(coefficient, 1 - clip_low, 1 + clip_high)
        each = -torch.min(coefficient * advantage, kept * advantage)
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        return ((each * held).sum(-1) / lengths).mean()

    return loss


def by_token(clip_low: float, clip_high: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of GSPO-token in verl (compute_policy_loss_gspo), with equal weights for all completions."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        held, table = mask(), padded(log_prob)
        lengths = held.sum(-1)
        mean = ((table - padded(seen.old)) * held).sum(-1) / lengths
        ratio = (table - table.detach() + mean.detach()[:, None]).exp()
        advantage = padded(seen.advantage)
        each = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - clip_low, 1 + clip_high))
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        return ((each * held).sum(-1) / lengths).mean()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_of_completions_are_the_published_ones(seed: int) -> None:
    assert_same(Gspo(**WIDE, importance_ceiling=1.3), published(0.2, 0.15, 1.3), seed)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_of_tokens_are_the_published_ones(seed: int) -> None:
    objective = GspoToken(**WIDE, importance_ceiling=1.3)
    assert_same(objective, by_token(0.2, 0.15, 1.3), seed, completion_weights(), by_token=True)


def test_with_one_advantage_a_completion_both_are_the_same() -> None:
    log_prob, seen = random_round(3)
    one_weight: dict[str, Any] = {**WIDE, "importance_level": "completion"}
    whole, shares = Gspo(**one_weight), completion_weights()
    asked = log_prob.clone().requires_grad_()
    (expected,) = torch.autograd.grad(whole(seen.sum_by_completion(asked), seen)[0].mean(), asked)
    asked = log_prob.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((shares * GspoToken(**one_weight)(asked, seen)[0]).sum(), asked)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-14)


def test_the_ratio_is_the_root_of_the_product_and_the_clip_takes_whole_completions() -> None:
    old = numbers(-1.0, -1.0, -2.0, -2.0)
    moved = old + numbers(4.0, 1.0, 0.9, 0.9).log()  # geometric means 2.0 and 0.9
    seen = make_batch(numbers(1.0, 1.0, 1.0, 1.0), None, old, completion=torch.tensor([0, 0, 1, 1]))
    loss, watch = Gspo(clip_low=0.2, clip_high=0.5)(seen.sum_by_completion(moved), seen)
    torch.testing.assert_close(loss, -numbers(1.5, 0.9))
    assert watch["clipped_share"].tolist() == [1.0, 0.0]
    gradient = gradient_of(GspoToken(clip_low=0.2, clip_high=0.5), moved, seen)
    torch.testing.assert_close(gradient, -numbers(0.0, 0.0, 0.9, 0.9))  # zero also for the token that has not moved


def test_on_the_first_step_it_is_the_policy_gradient_by_completion() -> None:
    log_prob, seen = random_round(4)
    seen = replace(seen, old=log_prob, behaviour=log_prob)
    asked = log_prob.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(Gspo()(seen.sum_by_completion(asked), seen)[0].mean(), asked)
    torch.testing.assert_close(gradient, -seen.advantage * completion_weights(), rtol=0, atol=1e-14)


def test_as_wide_as_can_be_nothing_is_clipped() -> None:
    log_prob, seen = random_round(5, move=2.0)
    _, watch = Gspo(clip_low=None, clip_high=None)(seen.sum_by_completion(log_prob), seen)
    assert (
        watch["clipped_share"].sum() == 0 and Gspo()(seen.sum_by_completion(log_prob), seen)[1]["clipped_share"].any()
    )
    assert all(value.shape == (5,) and not value.requires_grad for value in watch.values())


def test_no_gradient_flows_through_the_value_of_a_tokens_ratio() -> None:
    """The loss of a token has a gradient with respect to its own log-prob, but not to those of the other tokens."""
    old = numbers(-1.0, -1.0)
    seen = make_batch(numbers(2.0, 0.0), None, old, completion=torch.tensor([0, 0]))
    gradient = gradient_of(GspoToken(clip_low=None, clip_high=None), old + math.log(1.1), seen)
    torch.testing.assert_close(gradient, numbers(-2.2, 0.0))
