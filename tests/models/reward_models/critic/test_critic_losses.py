"""Losses of a value model: the clipped squared error and the smoothed cross-entropy by hand, and refused settings."""

import math
from statistics import NormalDist

import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from models.reward_models.critic.losses import (
    bin_edges,
    expectation,
    hl_gauss,
    loss_of,
    smoothed_target,
    squared_error,
    values_of,
)
from models.reward_models.critic.settings import CriticSettings
from tests.support.tiny_batches import numbers

EDGES = bin_edges(-1.0, 1.0, 20, numbers(0))
WIDTH = 0.1
SIGMA = 0.75 * WIDTH


def test_the_squared_error_by_hand() -> None:
    torch.testing.assert_close(squared_error(numbers(1, 3), numbers(0, 5)), numbers(0.5, 2.0))


def test_the_clipped_loss_by_hand() -> None:
    # Old value 0, clip 0.2. First: 0.5 towards the target; the clipped value 0.2 is further from the target and counts,
    # 0.8^2 / 2. Second: 0.5 away from the target; the value itself is further from it, 1.5^2 / 2. Third: within the
    # clip, so the plain error, 0.9^2 / 2.
    actual = squared_error(numbers(0.5, -0.5, 0.1), numbers(1, 1, 1), numbers(0, 0, 0), 0.2)
    torch.testing.assert_close(actual, numbers(0.32, 1.125, 0.405))


def test_a_value_that_went_further_than_the_clip_towards_its_target_is_pushed_no_more() -> None:
    values = numbers(0.5, -0.5, 0.1).requires_grad_()
    squared_error(values, numbers(1, 1, 1), numbers(0, 0, 0), 0.2).sum().backward()
    torch.testing.assert_close(values.grad, numbers(0, -1.5, -0.9))


def test_the_mass_of_each_bin_is_that_of_a_normal_distribution_cut_off_at_the_range() -> None:
    target = NormalDist(0.33, SIGMA)
    mass = [target.cdf(-0.9 + WIDTH * i) - target.cdf(-1.0 + WIDTH * i) for i in range(20)]
    actual = smoothed_target(numbers(0.33), EDGES, SIGMA)[0]
    torch.testing.assert_close(actual, numbers(*mass) / sum(mass), rtol=1e-9, atol=1e-12)


def test_the_mean_of_the_smoothed_bins_is_the_target_as_far_as_five_sigmas_inside_the_range() -> None:
    targets = torch.linspace(-1 + 5 * SIGMA, 1 - 5 * SIGMA, 201, dtype=torch.float64)
    values = expectation(smoothed_target(targets, EDGES, SIGMA), EDGES)
    assert (values - targets).abs().max() < 1e-4 * WIDTH


def test_at_the_ends_of_the_range_the_mean_is_off_by_less_than_a_bin_and_a_fifth() -> None:
    values = expectation(smoothed_target(numbers(-1, 1), EDGES, SIGMA), EDGES)
    assert -1 < values[0] < -1 + 0.8 * SIGMA + WIDTH / 2 and 1 - 0.8 * SIGMA - WIDTH / 2 < values[1] < 1


def test_targets_outside_the_range_count_as_its_ends() -> None:
    torch.testing.assert_close(
        smoothed_target(numbers(-50, 50), EDGES, SIGMA), smoothed_target(numbers(-1, 1), EDGES, SIGMA)
    )


def test_the_cross_entropy_is_least_where_the_bins_are_the_target_and_there_its_entropy() -> None:
    target = smoothed_target(numbers(0.2), EDGES, SIGMA)
    logits = target.clamp(min=1e-300).log().requires_grad_()
    loss = hl_gauss(logits, numbers(0.2), EDGES, SIGMA)
    entropy = -sum(p * math.log(p) for p in target[0].tolist() if p > 0)
    assert float(loss.detach()) == pytest.approx(entropy, abs=1e-9)
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loss_and_gradient_are_finite_for_any_return_and_any_logits(dtype: torch.dtype) -> None:
    returns = torch.tensor([-1e6, -1.0, -0.05, 0.0, 1.0, 1e6], dtype=dtype)
    logits = (torch.randn(6, 20, generator=torch.Generator().manual_seed(0)) * 1e3).to(dtype).requires_grad_()
    loss = hl_gauss(logits, returns, EDGES.to(dtype), SIGMA)
    loss.sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(loss).all() and torch.isfinite(logits.grad).all()
    assert logits.grad.abs().max() <= 1 + 1e-5  # the gradient is q - p, however far the target is


def test_the_settings_choose_the_loss_and_what_outputs_mean() -> None:
    settings = CriticSettings(loss="mse", clip=0.2)
    outputs = numbers(0.5).unsqueeze(-1)
    torch.testing.assert_close(values_of(outputs, settings), numbers(0.5))
    torch.testing.assert_close(loss_of(outputs, numbers(1), numbers(0), settings), numbers(0.32))
    bins = CriticSettings(loss="hl_gauss", bins=20, low=-1.0, high=1.0)
    logits = torch.randn(3, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    returns = numbers(-0.5, 0, 0.7)
    torch.testing.assert_close(values_of(logits, bins), logits.softmax(-1) @ ((EDGES[1:] + EDGES[:-1]) / 2))
    torch.testing.assert_close(loss_of(logits, returns, None, bins), hl_gauss(logits, returns, EDGES, SIGMA))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"low": 1.0, "high": 1.0}, "critic.low is 1.0, not below"),
        ({"loss": "hl_gauss", "clip": 0.2}, "critic.clip"),
        ({"optimiser": {"decay": "linear"}}, "decay must be none"),
        ({"sigma": 0.0}, "greater than 0"),
        ({"bins": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float | str | dict[str, str]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TypeAdapter(CriticSettings).validate_python(wrong)
