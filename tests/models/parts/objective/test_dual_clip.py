"""The second clip of tokens with negative advantage: the losses of verl and TRL, and the tokens that it affects."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.recipes.load import load_recipe
from tests.support.random_rounds import TOKENS, assert_same, mask, padded, random_round
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def by_verl(low: float, high: float, second: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of dual-clip PPO in verl (compute_policy_loss_vanilla, clip_ratio_c), with token mean."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        advantage, held = padded(seen.advantage), mask()
        ratio = (padded(log_prob) - padded(seen.old)).exp()
        clipped = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high))
        each = torch.where(advantage < 0, torch.min(-advantage * second, clipped), clipped)
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        return (each * held).sum() / held.sum()

    return loss


def by_trl(low: float, high: float, delta: float, ceiling: float) -> Callable[[Tensor, TokenBatch], Tensor]:
    """Return the loss of two-sided clipping in TRL 1.16 (`delta`; INTELLECT-2; loss_type="dapo", token_truncate)."""

    def loss(log_prob: Tensor, seen: TokenBatch) -> Tensor:
        advantage, held = padded(seen.advantage), mask()
        ratio = (padded(log_prob) - padded(seen.old)).exp()
        each = -torch.min(ratio.clamp(max=delta) * advantage, ratio.clamp(1 - low, 1 + high) * advantage)
        each = each * torch.clamp((padded(seen.old) - padded(seen.behaviour)).exp(), max=ceiling)
        return (each * held).sum() / held.sum()

    return loss


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("published", [by_verl, by_trl])
def test_loss_and_gradient_are_the_published_ones(
    seed: int, published: Callable[..., Callable[[Tensor, TokenBatch], Tensor]]
) -> None:
    objective = Grpo(kl=0.0, clip_low=0.2, clip_high=0.3, dual_clip=1.5, importance_ceiling=1.2)
    shares = torch.full((TOKENS,), 1 / TOKENS, dtype=torch.float64)
    _, watch = objective(*random_round(seed, move=0.8))
    assert watch["dual_clipped_share"].sum() > 0
    assert_same(objective, published(0.2, 0.3, 1.5, 1.2), seed, shares, move=0.8)


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "gradient"),
    [
        (-1.0, 2.9, 2.9, 2.9),
        (-1.0, 3.1, 3.0, 0.0),
        (1.0, 3.1, -1.2, 0.0),
        (1.0, 0.1, -0.1, -0.1),
        (-1.0, 0.1, 0.8, 0.0),
    ],
)
def test_only_a_bad_token_that_has_become_much_likelier_leaves_the_gradient(
    advantage: float, ratio: float, loss: float, gradient: float
) -> None:
    old = numbers(-5.0)
    seen, moved = make_batch(numbers(advantage), None, old), old + numbers(ratio).log()
    objective = Grpo(kl=0.0, dual_clip=3.0)
    torch.testing.assert_close(objective(moved, seen)[0], numbers(loss))
    torch.testing.assert_close(gradient_of(objective, moved, seen), numbers(gradient))
    assert objective(moved, seen)[1]["dual_clipped_share"].tolist() == [float(advantage < 0 and ratio > 3)]


def test_far_away_it_is_the_plain_clip() -> None:
    log_prob, seen = random_round(7, move=1.0)
    for first, other in zip(Grpo(dual_clip=1e6)(log_prob, seen)[:1], Grpo()(log_prob, seen)[:1], strict=True):
        torch.testing.assert_close(first, other)


def test_a_second_clip_within_the_first_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("objective: {name: grpo, clip_high: 0.5, dual_clip: 1.4}")
    with pytest.raises(UserError, match=r"dual_clip is 1.4, not above 1 \+ clip_high, 1.5") as caught:
        load_recipe(file)
    assert "\n" not in str(caught.value)
