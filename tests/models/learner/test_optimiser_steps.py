"""Optimiser steps: the learning rate by step, clipping, refusal of gradients that are not finite, and weight decay."""

from typing import Literal

import pytest
import torch
from torch import nn

from models.base.errors import UserError
from models.learner.optimiser import OptimiserSettings, build_optimiser, learning_rate_at, take_step


def test_the_step_size_by_hand() -> None:
    """The linear rate rises over four steps to its peak, then falls by a seventh per step to zero at step 10."""
    settings = OptimiserSettings(learning_rate=1.0, warmup_steps=4, decay="linear")
    assert [learning_rate_at(step, 10, settings) for step in range(11)] == pytest.approx(
        [1 / 4, 2 / 4, 3 / 4, 1.0, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7, 0.0]
    )
    cosine = OptimiserSettings(learning_rate=2.0, warmup_steps=3, decay="cosine")
    assert [learning_rate_at(step, 10, cosine) for step in (0, 1, 2, 6, 10)] == pytest.approx([2 / 3, 4 / 3, 2, 1, 0])
    assert learning_rate_at(900, 10, OptimiserSettings(learning_rate=0.3, warmup_steps=0)) == pytest.approx(0.3)


@pytest.mark.parametrize("decay", ["none", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 2, 7, 10])
def test_the_step_size_reaches_its_peak_once_and_never_passes_it(
    decay: Literal["none", "linear", "cosine"], warmup: int
) -> None:
    settings = OptimiserSettings(learning_rate=0.3, warmup_steps=warmup, decay=decay)
    rates = [learning_rate_at(step, 10, settings) for step in range(10)]
    assert max(rates) == 0.3 == rates[max(0, warmup - 1)] and min(rates) > 0
    falling = rates[max(0, warmup - 1) :]
    assert falling == sorted(falling, reverse=True)


def test_a_gradient_of_norm_five_is_scaled_down_to_one() -> None:
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    weight.grad = torch.tensor([3.0, 4.0], dtype=torch.float64)
    settings = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1.0)
    norm = take_step(torch.optim.SGD([weight]), [weight], 0, 1, settings)
    assert norm == pytest.approx(5.0)
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.6, -0.8], dtype=torch.float64), rtol=0, atol=1e-6)
    assert weight.grad is None


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_moves_nothing_and_is_named(poison: float) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.tensor([0.0, poison])
    optimiser = torch.optim.AdamW([weight])
    with pytest.raises(UserError, match=r"update 7: the gradient norm is (nan|inf)"):
        take_step(optimiser, [weight], 7, 10, OptimiserSettings())
    assert weight.tolist() == [1.0, 1.0] and weight.grad is None and not optimiser.state


def test_matrices_decay_and_vectors_do_not_and_the_frozen_never_move() -> None:
    layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).requires_grad_(False))
    before = {name: value.detach().clone() for name, value in layers.named_parameters()}
    settings = OptimiserSettings(learning_rate=0.1, weight_decay=0.5, warmup_steps=0)
    optimiser = build_optimiser(layers, settings)
    for parameter in layers.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    take_step(optimiser, layers.parameters(), 0, 1, settings)
    after = dict(layers.named_parameters())
    torch.testing.assert_close(after["0.weight"].detach(), before["0.weight"] * 0.95)
    for name in ("0.bias", "1.weight", "1.bias"):
        assert torch.equal(after[name], before[name])
