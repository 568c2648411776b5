"""Divergence from a teacher, in float64: values and gradients equal the published formula and values by hand."""

import math
from collections.abc import Callable, Sequence
from typing import cast

import pytest
import torch
from torch import Tensor

from models.learner.fused_divergence import Logits, absolute_gap, fused_divergence
from models.learner.fused_log_probs import Head
from tests.support.device_here import DEVICE, placed

ONE = Head(torch.eye(3, dtype=torch.float64, device=DEVICE))
BETAS = (0.0, 0.1, 0.5, 0.9, 1.0)
GAP = 1e-12


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return placed(torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)) * scale


def as_published(student_logits: Tensor, teacher_logits: Tensor, beta: float) -> Tensor:
    """Return the generalised JSD by GKD's equation 1 and TRL's GKDTrainer.generalized_jsd_loss (beta 0: the KL, 1: the
    inverse KL), summed over the vocabulary. It uses probabilities and not their logarithms."""
    p, q = torch.softmax(student_logits, -1), torch.softmax(teacher_logits, -1)
    if beta == 0.0:
        return (q * torch.log(q / p)).sum(-1)
    if beta == 1.0:
        return (p * torch.log(p / q)).sum(-1)
    m = beta * q + (1 - beta) * p
    return beta * (q * torch.log(q / m)).sum(-1) + (1 - beta) * (p * torch.log(p / m)).sum(-1)


def logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, softcap: float | None) -> Tensor:
    z = hidden @ weight.T + (0.0 if bias is None else bias)
    return z if softcap is None else softcap * torch.tanh(z / softcap)


def largest_gap(ones: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    return max(float((first - other).abs().max()) for first, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize(("elements", "softcap", "biased", "temperature"), [
    (2**19, None, False, 1.0), (1200, 3.0, True, 0.7), (1, None, True, 1.3),
])  # fmt: skip
def test_value_and_gradient_are_those_of_the_published_formula(
    beta: float, elements: int, softcap: float | None, biased: bool, temperature: float
) -> None:
    teacher, states = numbers(90, 7, seed=6, scale=0.7), numbers(17, 7, seed=7)

    def run(divergence: Callable[[Tensor, Tensor, Tensor | None], Tensor]) -> list[Tensor]:
        leaves = [numbers(17, 5).requires_grad_(), numbers(90, 5, seed=1, scale=0.7).requires_grad_()]
        leaves += [numbers(90, seed=2).requires_grad_()] if biased else []
        bias = leaves[2] if biased else None
        values = divergence(leaves[0], leaves[1], bias)
        (values * numbers(17, seed=4)).sum().backward()
        return [values.detach(), *(cast(Tensor, leaf.grad) for leaf in leaves)]

    fused = run(
        lambda hidden, weight, bias: fused_divergence(
            hidden,
            Head(weight, bias, softcap),
            Logits([(states, Head(teacher), 1.0)], temperature),
            beta,
            temperature,
            block_elements=elements,
        )
    )
    plain = run(
        lambda hidden, weight, bias: as_published(
            logits(hidden, weight, bias, softcap) / temperature, states @ teacher.T / temperature, beta
        )
    )
    assert largest_gap(fused, plain) <= GAP


def test_by_hand_a_half_and_two_quarters_against_uniform() -> None:
    p = torch.tensor([[0.5, 0.25, 0.25]], dtype=torch.float64, device=DEVICE).log()
    target = Logits([(torch.zeros(1, 3, dtype=torch.float64, device=DEVICE), ONE, 1.0)])
    reverse, forward = (float(fused_divergence(p, ONE, target, beta)) for beta in (1.0, 0.0))
    assert reverse == pytest.approx(math.log(3) - 1.5 * math.log(2), abs=GAP)
    assert forward == pytest.approx(math.log(4 / 3) * 2 / 3 + math.log(2 / 3) / 3, abs=GAP)


@pytest.mark.parametrize("beta", BETAS)
def test_a_policy_that_is_its_teacher_has_no_divergence_and_no_gradient(beta: float) -> None:
    hidden, weight = numbers(6, 5).requires_grad_(), numbers(11, 5, seed=1)
    values = fused_divergence(hidden, Head(weight), Logits([(hidden.detach(), Head(weight), 1.0)]), beta)
    (gradient,) = torch.autograd.grad(values.sum(), hidden)
    assert float(values.detach().abs().max()) <= GAP and float(gradient.abs().max()) <= GAP


@pytest.mark.parametrize(("beta", "limit"), [(1e-6, 0.0), (1 - 1e-6, 1.0)])
def test_near_its_ends_the_generalised_divergence_is_beta_or_one_less_beta_times_a_kl(
    beta: float, limit: float
) -> None:
    hidden, weight = numbers(6, 5), numbers(11, 5, seed=1)
    target = Logits([(numbers(6, 5, seed=2), Head(numbers(11, 5, seed=3)), 1.0)])
    near, kl = (fused_divergence(hidden, Head(weight), target, value) for value in (beta, limit))
    small = beta if limit == 0.0 else 1 - beta
    torch.testing.assert_close(near / small, kl, rtol=1e-3, atol=0.0)


def test_the_gradient_of_the_reverse_kl_is_that_of_its_sampled_log_ratio_in_expectation() -> None:
    """E_p[(log p - log q) grad log p] = grad KL(p || q): the sampled form is an unbiased estimate of the full one."""
    z, log_q = numbers(1, 6).requires_grad_(), torch.log_softmax(numbers(1, 6, seed=1), -1)
    eye = Head(torch.eye(6, dtype=torch.float64, device=DEVICE))
    whole = torch.autograd.grad(fused_divergence(z, eye, Logits([(log_q, eye, 1.0)]), 1.0).sum(), z)[0]
    log_p = torch.log_softmax(z, -1)
    expected = torch.autograd.grad((log_p.exp().detach() * (log_p - log_q).detach() * log_p).sum(), z)[0]
    assert float((whole - expected).abs().max()) <= GAP


def test_rows_that_only_one_projection_has_count_for_neither() -> None:
    hidden, weight, teacher = numbers(4, 5), numbers(11, 5, seed=1), numbers(9, 5, seed=2)
    target = Logits([(hidden, Head(teacher), 1.0)])
    padded = fused_divergence(hidden, Head(weight), target, 1.0)
    torch.testing.assert_close(padded, fused_divergence(hidden, Head(weight[:9]), target, 1.0), rtol=0, atol=GAP)
    grown = Logits([(hidden, Head(torch.cat([teacher, numbers(3, 5, seed=3)])), 1.0)])
    torch.testing.assert_close(fused_divergence(hidden, Head(weight[:9]), grown, 1.0), padded, rtol=0, atol=GAP)


def test_a_sum_of_logits_with_a_weight_for_each_token_is_their_normalised_product() -> None:
    states, first, other = numbers(4, 5), numbers(9, 5, seed=1), numbers(9, 5, seed=2)
    weight = torch.tensor([0.0, 0.5, 1.0, 3.0], dtype=torch.float64, device=DEVICE)
    target = Logits([(states, Head(first), 1.0 + weight), (states, Head(other), -weight)])
    p, q = torch.softmax(states @ first.T, -1), torch.softmax(states @ other.T, -1)
    product = p ** (1 + weight[:, None]) / q ** weight[:, None]
    wanted = torch.log(product / product.sum(-1, keepdim=True))
    torch.testing.assert_close(target.log_probs(slice(0, 4), 9), wanted, rtol=0, atol=1e-11)


def test_the_absolute_gap_of_opposites_is_two_and_of_equals_none() -> None:
    sure = torch.tensor([[50.0, 0.0, 0.0], [0.0, 50.0, 0.0]], dtype=torch.float64, device=DEVICE)
    first, other = Logits([(sure, ONE, 1.0)]), Logits([(sure[[0, 0]], ONE, 1.0)])
    torch.testing.assert_close(
        absolute_gap(first, other, 2, DEVICE), torch.tensor([0.0, 2.0], dtype=torch.float64, device=DEVICE)
    )
