"""The geometric mean of clipped ratios: the published loss and gradient, the clip of each token, GSPO as a limit."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.gmpo import Gmpo
from models.parts.objective.gspo import GspoToken
from tests.support.random_rounds import assert_same, completion_weights, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def published(low: float, high: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of GMPO in verl (compute_policy_loss_geo_mean), implemented independently."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        table, held = padded(log_prob) - padded(seen.old), mask()
        advantage = padded(seen.advantage)
        sign = torch.sign(advantage)
        least = sign * torch.min(sign * table, sign * table.clamp(-low, high))
        lengths = held.sum(-1)
        ratio = ((least * held).sum(-1) / lengths).exp()
        return (-(advantage * held).sum(-1) / lengths * ratio).mean()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_loss_and_gradient_are_the_published_ones(seed: int) -> None:
    objective = Gmpo(log_clip_low=0.3, log_clip_high=0.2, importance_ceiling=None)
    log_prob, seen = random_round(seed)
    assert (Gmpo(log_clip_low=0.3, log_clip_high=0.2)(log_prob, seen)[1]["clipped_share"].sum()) > 1
    assert_same(objective, published(0.3, 0.2), seed, completion_weights(), gap=0.0)


def test_a_token_that_has_gone_too_far_leaves_the_gradient_alone_and_not_its_completion() -> None:
    old = numbers(-3.0, -3.0)
    moved = old + numbers(1.0, 0.1)  # nats; the clip is at 0.4
    seen = make_batch(numbers(1.0, 1.0), None, old, completion=torch.tensor([0, 0]))
    value = torch.exp(numbers(0.25))  # mean of 0.4 and 0.1
    loss, watch = Gmpo()(moved, seen)
    torch.testing.assert_close(loss, -value.expand(2))
    torch.testing.assert_close(gradient_of(Gmpo(), moved, seen), -torch.cat([numbers(0.0), value]))
    assert watch["clipped_share"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(("advantage", "move", "clipped"), [(1, -2.0, 0), (-1, 2.0, 0), (1, 2.0, 1), (-1, -2.0, 1)])
def test_the_clip_stops_only_what_has_moved_in_the_direction_of_its_advantage(
    advantage: int, move: float, clipped: int
) -> None:
    old = numbers(-3.0)
    seen = make_batch(numbers(advantage), None, old)
    assert Gmpo()(old + move, seen)[1]["clipped_share"].tolist() == [clipped]
    assert (gradient_of(Gmpo(), old + move, seen) == 0).tolist() == [bool(clipped)]


def test_without_a_clip_it_is_gspo_without_one() -> None:
    log_prob, seen = random_round(4)
    seen = replace(seen, behaviour=seen.old)
    shares = completion_weights()
    gradients = []
    for objective in (Gmpo(log_clip_low=None, log_clip_high=None), GspoToken(clip_low=None, clip_high=None)):
        asked = log_prob.clone().requires_grad_()
        gradients.append(torch.autograd.grad((shares * objective(asked, seen)[0]).sum(), asked)[0])
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)
