"""The fused output projection: log-probs, entropies and gradients equal the full log-softmax in float64."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from models.learner import fused_log_probs as fused_log_probs_module
from models.learner.distribution import Distribution
from models.learner.fused_log_probs import Head, fused_log_probs
from models.learner.logit_blocks import Blocks
from tests.support.device_here import DEVICE, OF_A_PROCESSOR, placed

EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
ONE = Head(torch.eye(3, dtype=torch.float64, device=DEVICE))


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return placed(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)) * scale


def by_definition(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    softcap: float | None,
    distribution: Distribution,
) -> tuple[Tensor, Tensor]:
    """Return log-probs and entropies from the full softmax; truncate row by row in plain Python, without blocks."""
    logits = hidden @ weight.T + (0.0 if bias is None else bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    z = logits / distribution.temperature
    kept = torch.ones_like(z, dtype=torch.bool)
    for row, target in enumerate(targets.tolist()):
        order = sorted(range(z.shape[1]), key=lambda token: -float(z[row, token].detach()))
        if distribution.top_k:
            order = order[: distribution.top_k]
        share = torch.softmax(z[row, order].detach(), 0).tolist()
        if distribution.top_p < 1.0:
            enough = next(n for n, total in enumerate(itertools.accumulate(share)) if total >= distribution.top_p)
            order = order[: enough + 1]
        lowest = min(float(z[row, token].detach()) for token in [*order, target])
        kept[row] = z[row].detach() >= lowest
    log_softmax = torch.log_softmax(z.masked_fill(~kept, float("-inf")), dim=1)
    p = log_softmax.exp()
    entropy = -(p * log_softmax.masked_fill(~kept, 0.0)).sum(1)
    return log_softmax.gather(1, targets[:, None]).squeeze(1), entropy


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("elements", [2**21, 7 * 256, 300])
@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(
    "distribution",
    [
        Distribution(),
        Distribution(temperature=0.7),
        Distribution(temperature=0.7, top_p=0.9),
        Distribution(top_k=20),
        Distribution(temperature=1.3, top_k=50, top_p=0.5),
    ],
)
def test_values_and_gradients_equal_the_full_log_softmax(
    elements: int, softcap: float | None, with_bias: bool, distribution: Distribution
) -> None:
    def run(function: Callable[..., tuple[Tensor, Tensor]]) -> list[Tensor | None]:
        hidden = numbers(17, 12, scale=2.0).requires_grad_()
        weight = numbers(700, 12, seed=1).requires_grad_()
        bias = numbers(700, seed=2).requires_grad_() if with_bias else None
        log_prob, entropy = function(hidden, weight, bias)
        (log_prob * numbers(17, seed=4) + entropy * numbers(17, seed=5)).sum().backward()
        actual: list[Tensor | None] = [log_prob, entropy, hidden.grad, weight.grad]
        return [*actual, bias.grad] if bias is not None else actual

    targets = placed(torch.randint(0, 700, (17,), generator=torch.Generator().manual_seed(3)))
    blocked = run(
        lambda hidden, weight, bias: fused_log_probs(
            hidden, Head(weight, bias, softcap), targets, distribution, block_elements=elements
        )
    )
    full = run(lambda hidden, weight, bias: by_definition(hidden, weight, bias, targets, softcap, distribution))
    for first, other in zip(blocked, full, strict=True):
        torch.testing.assert_close(first, other, **EXACT)


def test_the_gradient_agrees_with_finite_differences() -> None:
    hidden, weight = numbers(4, 5).requires_grad_(), numbers(9, 5, seed=1).requires_grad_()
    targets = torch.tensor([0, 8, 3, 3], device=DEVICE)

    def function(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return fused_log_probs(hidden, Head(weight), targets, Distribution(temperature=0.8), block_elements=8)

    assert torch.autograd.gradcheck(function, (hidden, weight))


def test_entropy_of_a_half_and_two_quarters_is_one_and_a_half_bits() -> None:
    states = torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64, device=DEVICE).log()
    log_prob, entropy = fused_log_probs(states, ONE, torch.tensor([0, 2], device=DEVICE))
    torch.testing.assert_close(
        entropy, torch.tensor([1.5 * math.log(2), math.log(3)], dtype=torch.float64, device=DEVICE)
    )
    torch.testing.assert_close(log_prob, torch.tensor([0.5, 1 / 3], dtype=torch.float64, device=DEVICE).log())


def test_half_the_temperature_squares_the_odds() -> None:
    states = (
        torch.tensor([[0.75, 0.25, 0.0]], dtype=torch.float64, device=DEVICE).log().clamp(min=-1e9)
    )  # odds 3, squared 9
    log_prob, _ = fused_log_probs(states, ONE, torch.tensor([0], device=DEVICE), Distribution(temperature=0.5))
    torch.testing.assert_close(log_prob.exp(), torch.tensor([0.9], dtype=torch.float64, device=DEVICE))


def test_the_gradient_at_the_logits_is_one_hot_minus_probability() -> None:
    states = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64, device=DEVICE).log().requires_grad_()
    log_prob, _ = fused_log_probs(states, ONE, torch.tensor([1], device=DEVICE))
    (gradient,) = torch.autograd.grad(log_prob.sum(), states)
    torch.testing.assert_close(gradient, torch.tensor([[-0.5, 0.75, -0.25]], dtype=torch.float64, device=DEVICE))


def test_of_a_half_and_two_unequal_rest_the_nucleus_of_a_half_is_the_first_alone() -> None:
    states = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64, device=DEVICE).log()
    log_prob, entropy = fused_log_probs(states, ONE, torch.tensor([0], device=DEVICE), Distribution(top_p=0.45))
    assert float(log_prob) == pytest.approx(0.0, abs=1e-12) and float(entropy) == pytest.approx(0.0, abs=1e-12)
    log_prob, _ = fused_log_probs(states, ONE, torch.tensor([1], device=DEVICE), Distribution(top_p=0.7))
    assert float(log_prob.exp()) == pytest.approx(0.3 / 0.8)


def test_a_token_outside_the_nucleus_is_taken_in_and_stays_finite() -> None:
    states = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64, device=DEVICE).log()
    log_prob, _ = fused_log_probs(states, ONE, torch.tensor([2], device=DEVICE), Distribution(top_k=1))
    assert float(log_prob.exp()) == pytest.approx(0.2)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("distribution", [Distribution(), Distribution(top_p=0.9)])
def test_no_block_is_larger_than_its_limit(distribution: Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    made = Blocks.logits

    def watched(self: Blocks, states: Tensor, columns: slice, kept: list[Tensor] | None = None) -> Tensor:
        assert kept is None  # 2000 x 6000 logits are too many to be kept
        z = made(self, states, columns)
        sizes.append(z.numel())
        return z

    monkeypatch.setattr(Blocks, "logits", watched)
    hidden, weight = numbers(2000, 8).requires_grad_(), numbers(6000, 8, seed=1).requires_grad_()
    targets = torch.arange(2000, device=DEVICE)
    fused_log_probs(hidden, Head(weight), targets, distribution, block_elements=2**19)[0].sum().backward()
    assert max(sizes) <= 2**19
    assert sum(sizes) == 2 * 2000 * 6000  # every logit once forward and once backward


@OF_A_PROCESSOR
@pytest.mark.parametrize("compute", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("distribution", [Distribution(), Distribution(temperature=0.7, top_p=0.9)])
def test_products_that_are_kept_change_no_bit(
    compute: torch.dtype, distribution: Distribution, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, bias = numbers(700, 8, seed=1), numbers(700, seed=2)
    targets = torch.arange(300, device=DEVICE)

    def read() -> list[Tensor]:
        leaves = [tensor.clone().requires_grad_() for tensor in (numbers(300, 8), weight, bias)]
        head = Head(leaves[1], leaves[2], softcap=5.0)
        log_probs, entropy = fused_log_probs(leaves[0], head, targets, distribution, compute=compute)
        (log_probs.sum() + 0.1 * entropy.sum()).backward()
        return [log_probs.detach(), entropy.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]

    made = Blocks.logits
    calls: list[slice] = []

    def watched(self: Blocks, states: Tensor, columns: slice, kept: list[Tensor] | None = None) -> Tensor:
        calls.append(columns)
        return made(self, states, columns, kept)

    monkeypatch.setattr(Blocks, "logits", watched)
    kept, once = read(), len(calls)
    monkeypatch.setattr(fused_log_probs_module, "KEPT_BYTES", 0)
    again = read()
    assert len(calls) - once == 2 * once
    assert len(kept) == 5
    for first, second in zip(kept, again, strict=True):
        assert torch.equal(first, second)


def test_half_precision_products_are_summed_in_float32() -> None:
    hidden, weight = numbers(64, 32).float(), numbers(512, 32, seed=1).float()
    targets = torch.arange(64, device=DEVICE)
    exact, _ = fused_log_probs(hidden.double(), Head(weight.double()), targets)
    log_probs, _ = fused_log_probs(hidden, Head(weight), targets, compute=torch.bfloat16)
    assert log_probs.dtype == torch.float32
    torch.testing.assert_close(log_probs.double(), exact, rtol=0.0, atol=0.25)  # rounding of logits near 16: up to 1/16
