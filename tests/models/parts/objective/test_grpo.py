"""The clipped policy gradient: the clip, the KL term, importance weights, and the exact gradient of a small bandit."""

import math
from itertools import product

import pytest
import torch
from torch import Tensor

from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from models.parts.objective.weighted_likelihood import WeightedLikelihood
from models.parts.shared.importance import truncated_importance
from models.parts.shared.kl_term import KlSettings, k3
from tests.support.tiny_batches import gradient_of, numbers
from tests.support.tiny_batches import sampled_batch as batch
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def test_on_the_first_update_it_is_reinforce() -> None:
    log_prob, advantage = numbers(-1.0, -2.0, -0.1), numbers(1.5, -0.5, -2.0)
    gradient = gradient_of(Grpo(kl=0.0), log_prob, batch(advantage, old=log_prob))
    torch.testing.assert_close(gradient, -advantage)


def test_the_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    log_prob, shift, advantage, gap = (torch.randn(40, dtype=torch.float64, generator=generator) for _ in range(4))
    seen = batch(advantage, old=log_prob - 0.5 * shift, behaviour=log_prob - gap, reference=log_prob + 0.3 * gap)
    objective = Grpo(kl=0.7, importance_ceiling=1.5)
    assert torch.autograd.gradcheck(lambda x: objective(x, seen)[0], (log_prob.requires_grad_(),), eps=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("advantage", "ratio", "gradient"),
    [
        (1.0, 1.3, 0.0),  # good and already more than 20% likelier: no gradient
        (1.0, 1.19, -1.19),
        (1.0, 0.5, -0.5),  # good but less likely than before: never clipped
        (-1.0, 0.7, 0.0),  # bad and already more than 20% less likely: no gradient
        (-1.0, 0.81, 0.81),
        (-1.0, 1.5, 1.5),  # bad but likelier than before: never clipped
        (0.0, 1.5, 0.0),
    ],
)
def test_the_clip_stops_exactly_what_has_gone_far_enough(advantage: float, ratio: float, gradient: float) -> None:
    old = numbers(-3.0)
    seen = batch(numbers(advantage), old)
    log_prob = old + math.log(ratio)
    torch.testing.assert_close(gradient_of(Grpo(kl=0.0), log_prob, seen), numbers(gradient))
    _, watch = Grpo(kl=0.0)(log_prob, seen)
    assert watch["clipped_share"].tolist() == [float(gradient == 0.0 and advantage != 0.0)]


def test_the_two_sides_of_the_clip_are_set_apart() -> None:
    old, advantage = numbers(-1.0, -1.0), numbers(1.0, -1.0)
    objective = Grpo(kl=0.0, clip_low=0.1, clip_high=0.5)
    gradient = gradient_of(objective, old + numbers(1.4, 0.85).log(), batch(advantage, old))
    torch.testing.assert_close(gradient, numbers(-1.4, 0.0))


def test_k3_is_never_negative_and_zero_only_where_both_agree() -> None:
    reference = torch.linspace(-6, 0, 98, dtype=torch.float64)
    apart = k3(numbers(-2.0), reference)
    assert (apart > 0).sum() == 98 and k3(reference, reference).abs().max() == 0


def test_k3_is_unbiased_on_a_distribution_that_can_be_enumerated() -> None:
    policy, reference = numbers(0.5, 0.3, 0.2), numbers(0.2, 0.2, 0.6)
    estimate = (policy * k3(policy.log(), reference.log())).sum()
    torch.testing.assert_close(estimate, (policy * (policy / reference).log()).sum())


def test_the_kl_term_adds_beta_times_one_minus_the_odds_of_the_reference() -> None:
    log_prob = numbers(-1.0, -1.0)
    seen = batch(numbers(0.0, 0.0), log_prob, reference=log_prob + numbers(3.0, 0.5).log())
    torch.testing.assert_close(gradient_of(Grpo(kl=0.1), log_prob, seen), 0.1 * numbers(1 - 3.0, 1 - 0.5))
    loss, watch = Grpo(kl=0.1)(log_prob, seen)
    torch.testing.assert_close(watch["kl"], numbers(3.0 - 1 - math.log(3), 0.5 - 1 + math.log(2)))
    torch.testing.assert_close(loss, 0.1 * watch["kl"])


@pytest.mark.parametrize("objective", [Grpo(kl=0.0), Reinforce(kl=0.0), WeightedLikelihood(kl=0.0)])
def test_a_kl_that_weighs_nothing_is_watched_and_gives_no_signal_however_far_the_reference_is(
    objective: KlSettings,
) -> None:
    """k3 overflows to infinity here; infinity times a weight of zero would be NaN."""
    log_prob = torch.tensor([-200.0, -1.0])
    seen = batch(torch.tensor([1.0, -1.0]), log_prob, reference=torch.tensor([-0.1, -1.5]))
    without = batch(torch.tensor([1.0, -1.0]), log_prob)
    loss, watch = objective(log_prob, seen)
    assert loss.isfinite().all() and watch["kl"][0].isinf() and watch["kl"][1].isfinite()
    gradient = gradient_of(objective, log_prob, seen)
    torch.testing.assert_close(loss, objective(log_prob, without)[0])
    torch.testing.assert_close(gradient, gradient_of(objective, log_prob, without))
    assert gradient.isfinite().all() and "kl" not in objective(log_prob, without)[1]


def test_importance_weights_correct_the_engine_and_are_capped() -> None:
    old, behaviour = numbers(-1.0, -1.0, -1.0), numbers(-1.0, -1.0 + math.log(2), -1.0 - math.log(50))
    torch.testing.assert_close(truncated_importance(old, behaviour, 2.0), numbers(1.0, 0.5, 2.0))
    gradient = gradient_of(Grpo(kl=0.0, importance_ceiling=2.0), old, batch(numbers(1.0, 1.0, 1.0), old, behaviour))
    torch.testing.assert_close(gradient, -numbers(1.0, 0.5, 2.0))


def test_no_gradient_flows_through_the_importance_weight() -> None:
    old = numbers(-1.0).requires_grad_()
    assert not truncated_importance(old, numbers(-1.2), 2.0).requires_grad


def test_what_is_watched_is_one_value_a_token_without_gradient() -> None:
    log_prob = numbers(-1.0, -2.0).requires_grad_()
    _, watch = Grpo()(log_prob, batch(numbers(1.0, 1.0), log_prob.detach(), reference=log_prob.detach()))
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())


REWARDS = numbers(1.0, 0.0, -2.0, 0.5)


def bandit() -> tuple[Tensor, Tensor]:
    """Return the logits of a softmax policy over four actions and the exact gradient of its expected reward."""
    logits = numbers(0.3, -0.2, 0.9, 0.0).requires_grad_()
    (gradient,) = torch.autograd.grad((logits.softmax(0) * REWARDS).sum(), logits)
    return logits, gradient


@pytest.mark.parametrize("baseline", [0.0, 7.0])
def test_the_expected_update_is_the_exact_policy_gradient_whatever_the_baseline(baseline: float) -> None:
    logits, exact = bandit()
    log_prob = logits.log_softmax(0)
    losses, _ = Grpo(kl=0.0)(log_prob, batch(REWARDS - baseline, log_prob.detach()))
    (expected,) = torch.autograd.grad((log_prob.exp().detach() * losses).sum(), logits)
    torch.testing.assert_close(-expected, exact)


@pytest.mark.parametrize("size", [2, 3])
def test_the_expected_update_of_groups_is_the_exact_policy_gradient_but_for_the_share_of_ones_own_reward(
    size: int,
) -> None:
    """The mean of a group includes the completion's own reward. This scales the exact gradient by (G - 1) / G."""
    logits, exact = bandit()
    log_prob, total = logits.log_softmax(0), torch.zeros((), dtype=torch.float64)
    for actions in product(range(4), repeat=size):
        drawn = log_prob[list(actions)]
        advantage = GroupRelative(scale="none").of_completions(make_resources(), scored(REWARDS[list(actions)], [size]))
        losses, _ = Grpo(kl=0.0)(drawn, batch(advantage, drawn.detach()))
        total = total + drawn.detach().sum().exp() * losses.mean()
    (expected,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(-expected, exact * (size - 1) / size)


def test_sampling_from_another_distribution_is_corrected_to_the_exact_policy_gradient() -> None:
    logits, exact = bandit()
    log_prob, engine = logits.log_softmax(0), numbers(0.25, 0.25, 0.25, 0.25).log()
    losses, _ = Grpo(kl=0.0, importance_ceiling=100.0)(log_prob, batch(REWARDS, log_prob.detach(), engine))
    (expected,) = torch.autograd.grad((engine.exp() * losses).sum(), logits)
    torch.testing.assert_close(-expected, exact)
