"""AdamW with 8-bit running means: its steps, checkpoints and memory, compared with AdamW in higher precision.

No lock file contains torchao. If it is missing, a thorough test installs it in a temporary folder and runs all tests.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.learner.eight_bit import in_float, moment_bytes
from models.learner.optimiser import OptimiserSettings, build_optimiser, take_step
from models.policies.checkpoint import load_checkpoint, newest_checkpoint, state_of, write_checkpoint

EIGHT = OptimiserSettings(learning_rate=0.01, warmup_steps=0, weight_decay=0.1, moments="int8")
FULL = OptimiserSettings(learning_rate=0.01, warmup_steps=0, weight_decay=0.1)
needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="torchao is missing (the extra eight-bit)")


def layers(wide: int = 64) -> nn.Linear:
    """Make a layer: the means of its matrix have 8 bits if `wide` is at least 64, those of its bias never do."""
    torch.manual_seed(0)
    return nn.Linear(wide, wide)


def gradients(model: nn.Module, step: int) -> None:
    draws = torch.Generator().manual_seed(step)
    for weight in model.parameters():
        weight.grad = torch.randn(weight.shape, generator=draws) * 0.01


def moved(settings: OptimiserSettings, steps: int, wide: int = 64) -> nn.Linear:
    model = layers(wide)
    optimiser = build_optimiser(model, settings)
    for step in range(steps):
        gradients(model, step)
        take_step(optimiser, model.parameters(), step, 10, settings)
    return model


def farthest(model: nn.Module, other: nn.Module) -> float:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(float((mine - theirs).detach().abs().max()) for mine, theirs in pairs)


def nearest_level(numbers: Tensor, levels: Tensor) -> Tensor:
    """Round each number to the nearest level, in blocks of 256 that are scaled to a maximum of 1."""
    blocks = numbers.reshape(-1, 256)
    scale = blocks.abs().amax(1, keepdim=True)
    at = ((blocks / scale)[..., None] - levels).abs().argmin(-1)
    return (levels[at] * scale).reshape(numbers.shape)


@needs_torchao
def test_the_first_step_is_that_of_adamw() -> None:
    """The means are rounded only after they have changed the weights."""
    assert farthest(moved(EIGHT, 1), moved(FULL, 1)) < 1e-7


@needs_torchao
def test_tensors_below_4096_numbers_keep_float32() -> None:
    assert farthest(moved(EIGHT, 8, wide=48), moved(FULL, 8, wide=48)) < 1e-6


@needs_torchao
def test_later_steps_are_those_of_adamw_on_means_rounded_to_the_nearest_of_256_levels() -> None:
    """The expected weights come from AdamW in float64. Its means are rounded after every step to the levels of the
    paper's dynamic tree: a sign (or one more digit), a power of ten by leading zeros, and a linear fraction."""
    signed, unsigned = dynamic_levels(signed=True), dynamic_levels(signed=False)
    weight = layers().weight.detach().double()
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    steps = 3
    for step in range(steps):
        stand_in = layers()
        gradients(stand_in, step)
        nn.utils.clip_grad_norm_(stand_in.parameters(), 1.0)
        assert stand_in.weight.grad is not None
        gradient = stand_in.weight.grad.double()
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        unbiased = mean / (1 - 0.9 ** (step + 1)), square / (1 - 0.99 ** (step + 1))
        weight = weight * (1 - 0.01 * 0.1) - 0.01 * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
        mean, square = nearest_level(mean, signed), nearest_level(square, unsigned)
    gap = (moved(EIGHT, steps).weight.detach() - weight).abs()
    # In float32, a number midway between two levels may be rounded to either.
    assert float(gap.quantile(0.99)) < 1e-6 and farthest(moved(EIGHT, steps), moved(FULL, steps)) > 1e-5


def dynamic_levels(*, signed: bool) -> Tensor:
    """Return the 256 levels of the 8-bit dynamic tree, ascending: 0, 1, and for each power of ten from 10^-6 to 1 the
    midpoints between fractions that are twice as fine with every power."""
    levels = [0.0, 1.0]
    for digits in range(7):
        fractions = torch.linspace(0.1, 1.0, 2 ** (digits if signed else digits + 1) + 1, dtype=torch.float64)
        middles = (fractions[:-1] + fractions[1:]) / 2 * 10.0 ** (digits - 6)
        levels += middles.tolist() + ((-middles).tolist() if signed else [])
    return torch.tensor(sorted(levels), dtype=torch.float64)


@needs_torchao
def test_a_training_that_goes_on_from_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = moved(EIGHT, 6)
    half = layers()
    optimiser = build_optimiser(half, EIGHT)
    for step in range(3):
        gradients(half, step)
        take_step(optimiser, half.parameters(), step, 10, EIGHT)
    write_checkpoint(tmp_path, 1, state_of({"policy": half}, {"policy": optimiser}), {"policy": 3})
    fresh = layers()
    again = build_optimiser(fresh, EIGHT)
    checkpoint = newest_checkpoint(tmp_path)
    assert checkpoint is not None
    load_checkpoint(checkpoint, {"policy": fresh}, {"policy": again})
    for step in range(3, 6):
        gradients(fresh, step)
        take_step(again, fresh.parameters(), step, 10, EIGHT)
    assert farthest(whole, fresh) == 0.0


@needs_torchao
def test_the_means_take_a_quarter_of_the_memory() -> None:
    model = layers(256)
    optimiser = build_optimiser(model, EIGHT)
    gradients(model, 0)
    take_step(optimiser, model.parameters(), 0, 10, EIGHT)
    moments = [moment for state in optimiser.state.values() for name, moment in state.items() if name != "step"]
    parts = [[getattr(moment, name) for name in getattr(moment, "tensor_attrs", ())] or [moment] for moment in moments]
    held = sum(part.nbytes for of_moment in parts for part in of_moment)
    assert held == moment_bytes(model.parameters())
    assert held < 0.27 * 2 * sum(weight.nbytes for weight in model.parameters())
    assert not in_float(optimiser) and in_float(build_optimiser(model, FULL))


@pytest.mark.skipif(find_spec("torchao") is not None, reason="torchao is here")
def test_without_torchao_a_line_says_what_to_install() -> None:
    with pytest.raises(UserError, match=r"optimiser.moments is int8, which needs torchao: pip install 'torchao"):
        build_optimiser(layers(), EIGHT)


@pytest.mark.thorough
@pytest.mark.skipif(find_spec("torchao") is not None, reason="torchao is here, and the tests above have run")
def test_all_of_it_with_torchao_beside_the_environment(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    installed = subprocess.run([*pip, "torchao>=0.18,<0.19"], capture_output=True, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"torchao cannot be fetched here ({installed.stderr.strip().splitlines()[-1:]})")
    plan = Path(__file__).parents[1] / "recipes" / "plan" / "test_footprint.py"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", __file__, str(plan), "-k", "eight_bit or bits"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0 and "6 passed" in ran.stdout, ran.stdout[-2000:]
