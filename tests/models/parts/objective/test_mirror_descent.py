"""The squared loss of mirror descent: by hand, its gradient, and zero loss at the optimal policy only."""

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.objective.mirror_descent import MirrorDescent
from tests.support.tiny_batches import gradient_of, make_batch, numbers


def batch(advantage: Tensor, old: Tensor) -> TokenBatch:
    """Return completions of one token each; the log-probs of their sampler are NaN, so any use of them shows."""
    return make_batch(advantage, torch.full_like(old, torch.nan), old)


def test_by_hand() -> None:
    old = numbers(-1.0, -2.0)
    seen = batch(numbers(1.0, -0.5), old)
    loss, watch = MirrorDescent(tau=0.5)(old + numbers(1.0, 0.4), seen)
    torch.testing.assert_close(loss, numbers(0.25, 0.49))  # (1 - 0.5)^2 and (-0.5 - 0.2)^2, divided by 2 * 0.5
    torch.testing.assert_close(watch["miss"], numbers(0.5, 0.7))


def test_on_the_first_step_of_a_round_it_is_reinforce_whatever_tau() -> None:
    old, advantage = numbers(-1.0, -2.0, -0.1), numbers(1.5, -0.5, -2.0)
    for tau in (0.01, 1.0):
        torch.testing.assert_close(gradient_of(MirrorDescent(tau=tau), old, batch(advantage, old)), -advantage)


def test_from_then_on_the_gradient_is_reinforces_less_tau_times_the_way_gone() -> None:
    old, advantage, moved = numbers(-1.0, -2.0, -0.1), numbers(1.5, -0.5, -2.0), numbers(0.3, -0.7, 2.0)
    gradient = gradient_of(MirrorDescent(tau=0.4), old + moved, batch(advantage, old))
    torch.testing.assert_close(gradient, -advantage + 0.4 * moved)


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    old, advantage, moved = (torch.randn(20, dtype=torch.float64, generator=generator) for _ in range(3))
    seen, log_prob = batch(advantage, old - 3), (old - 3 + moved).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: MirrorDescent()(x, seen)[0], (log_prob,), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_with_the_true_constant_of_the_prompt_the_loss_is_zero_at_the_best_policy_and_there_alone(tau: float) -> None:
    old, worth = numbers(0.2, 0.3, 0.5).log(), numbers(1.0, 0.0, -2.0)
    constant = tau * torch.logsumexp(old + worth / tau, 0)  # tau * log Z, estimated by the group's mean
    best = (old + worth / tau).log_softmax(0)
    seen = batch(worth - constant, old)
    loss, _ = MirrorDescent(tau=tau)(best, seen)
    assert loss.max() < 1e-24
    elsewhere, _ = MirrorDescent(tau=tau)(numbers(0.3, 0.3, 0.4).log(), seen)
    assert elsewhere.min() > 1e-4


def test_a_completion_of_several_tokens_counts_as_a_whole() -> None:
    completion = torch.tensor([0, 0, 1])
    seen = make_batch(numbers(2.0, 2.0, 0.0), numbers(0, 0, 0), numbers(-1.0, -2.0, -3.0), None, completion)
    loss, watch = MirrorDescent(tau=1.0)(numbers(-2.0, -3.0), seen)
    torch.testing.assert_close(loss, numbers(0.5, 0.0))
    assert watch["moved"].tolist() == [1.0, 0.0]
    _, watch = MirrorDescent()(numbers(-2.0, -3.0).requires_grad_(), seen)
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
