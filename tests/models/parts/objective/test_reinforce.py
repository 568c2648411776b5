"""The policy gradient without a clip: compared with GRPO, finite differences and exact gradients."""

import math
from dataclasses import replace

import pytest
import torch

from models.method.token_batch import TokenBatch
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from tests.support.tiny_batches import gradient_of, numbers
from tests.support.tiny_batches import sampled_batch as batch


def random_batch() -> TokenBatch:
    generator = torch.Generator().manual_seed(0)
    old, gap, advantage, apart = (torch.randn(30, dtype=torch.float64, generator=generator) for _ in range(4))
    return batch(advantage, old - 3.0, old - 3.0 + 0.2 * gap, old - 3.0 + 0.3 * apart)


def test_by_hand() -> None:
    old = numbers(-1.0, -2.0)
    seen = batch(numbers(1.5, -0.5), old, behaviour=old - numbers(0.0, math.log(3)))
    loss, watch = Reinforce()(old, seen)
    torch.testing.assert_close(loss, numbers(1.5, -2.0))  # the ceiling limits the second weight to 2
    torch.testing.assert_close(watch["importance_weight"], numbers(1.0, 2.0))


def test_on_policy_the_clipped_objective_has_the_same_gradient_with_and_without_kl() -> None:
    seen = random_batch()
    for kl in (0.0, 0.3):
        torch.testing.assert_close(
            gradient_of(Reinforce(kl=kl), seen.old, seen), gradient_of(Grpo(kl=kl), seen.old, seen)
        )


def test_off_policy_the_clipped_objective_differs_from_it_by_the_ratio_and_the_clip_alone() -> None:
    seen = random_batch()
    moved = seen.old + 0.1  # ratio 1.105, within the clip on both sides
    plain, clipped = gradient_of(Reinforce(), moved, seen), gradient_of(Grpo(kl=0.0), moved, seen)
    torch.testing.assert_close(clipped, math.exp(0.1) * plain)
    far = seen.old + 1.0
    stopped = seen.advantage > 0
    gradient = gradient_of(Grpo(kl=0.0), far, seen)
    assert gradient[stopped].abs().max() == 0 and gradient_of(Reinforce(), far, seen)[stopped].abs().min() > 0


def test_the_gradient_agrees_with_finite_differences() -> None:
    seen = random_batch()
    moved = (seen.old + 0.4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: Reinforce(kl=0.7)(x, seen)[0], (moved,), eps=1e-6, atol=1e-8)


REWARDS = numbers(1.0, 0.0, -2.0, 0.5)


@pytest.mark.parametrize("baseline", [0.0, 7.0])
def test_sampled_by_another_engine_the_expected_update_is_the_exact_policy_gradient_whatever_the_baseline(
    baseline: float,
) -> None:
    logits, engine = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_(), numbers(0.1, 0.4, 0.3, 0.2)
    (exact,) = torch.autograd.grad((logits.softmax(0) * REWARDS).sum(), logits)
    log_prob = logits.log_softmax(0)
    seen = batch(REWARDS - baseline, log_prob.detach(), engine.log())
    losses, _ = Reinforce(importance_ceiling=100.0)(log_prob, seen)
    (expected,) = torch.autograd.grad((engine * losses).sum(), logits)
    torch.testing.assert_close(-expected, exact)


def test_over_a_tree_of_two_tokens_the_sum_over_tokens_is_the_exact_policy_gradient() -> None:
    first, second = numbers(0.4, -0.3).requires_grad_(), torch.tensor([[0.1, 0.8], [-0.5, 0.2]], dtype=torch.float64)
    second.requires_grad_()
    rewards = torch.tensor([[1.0, -1.0], [0.5, 3.0]], dtype=torch.float64)
    a, b = first.log_softmax(0), second.log_softmax(1)
    exact = torch.autograd.grad(((a[:, None] + b).exp() * rewards).sum(), (first, second), retain_graph=True)
    tokens = torch.stack([a[:, None].expand(2, 2), b], dim=-1).flatten()  # the two tokens of a completion are adjacent
    seen = batch(rewards.flatten().repeat_interleave(2), tokens.detach())
    losses, _ = Reinforce()(tokens, seen)
    chance = (a[:, None] + b).exp().detach().flatten()
    expected = torch.autograd.grad((chance * losses.view(4, 2).sum(-1)).sum(), (first, second))
    torch.testing.assert_close(tuple(-gradient for gradient in expected), exact)


def test_what_is_watched_is_one_value_a_token_without_gradient() -> None:
    seen = random_batch()
    loss, watch = Reinforce(kl=0.1)(seen.old.clone().requires_grad_(), seen)
    assert loss.shape == (30,) and set(watch) == {"importance_weight", "engine_gap", "kl"}
    assert all(value.shape == (30,) and not value.requires_grad for value in watch.values())
    assert "kl" not in Reinforce()(seen.old, replace(seen, reference=None))[1]
