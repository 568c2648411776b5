"""The pairwise policy gradient: its pairs, the clip, invariances, and the exact gradient of reward less KL."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor

from models.method.token_batch import TokenBatch
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.objective.p3o import P3o
from models.parts.shared.within_groups import mean_over_pairs, pairs_within
from tests.support.tiny_batches import gradient_of, make_batch, numbers
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def batch(rewards: Tensor, sampled: Tensor, group: Sequence[int], reference: Tensor | None = None) -> TokenBatch:
    """Return a batch of completions of one token each."""
    return make_batch(
        advantage=torch.zeros_like(rewards),
        behaviour=sampled,
        old=sampled,
        reference=reference,
        reward=rewards,
        group=torch.tensor(group),
    )


def test_pairs_are_those_of_a_group_each_once_and_a_group_of_one_has_none() -> None:
    group = torch.tensor([0, 1, 0, 2, 0, 1])
    pairs = pairs_within(group)
    assert pairs.tolist() == [[0, 2], [0, 4], [1, 5], [2, 4]]
    assert mean_over_pairs(numbers(1, 2, 7, 6), pairs, group).tolist() == [3.0, 7.0, 0.0]


def test_a_pair_by_hand() -> None:
    sampled = numbers(-2.0, -1.0)
    seen = batch(numbers(1.0, 0.0), sampled, [0, 0])
    loss, watch = P3o(clip=0.5)(sampled + numbers(0.2, -0.2), seen)  # as likely together as before: weight 1
    torch.testing.assert_close(loss, numbers(-0.2))  # half the reward difference of 1, times 0.2 + 0.2
    assert watch["pair_moved"].tolist() == pytest.approx([0.4]) and watch["clipped_share"].tolist() == [0.0]
    loss, watch = P3o(clip=0.25)(sampled + numbers(0.2, -0.2), seen)
    torch.testing.assert_close(loss, numbers(-0.125))
    assert watch["clipped_share"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("difference", "moved", "gradient"),
    [
        (1.0, 0.3, 0.0),  # the better one leads by more than the clip: no gradient
        (1.0, 0.1, -0.5),
        (1.0, -3.0, -0.5),  # the worse one leads: never clipped
        (-1.0, -0.3, 0.0),
        (-1.0, 3.0, 0.5),
        (0.0, 3.0, 0.0),
    ],
)
def test_the_clip_stops_exactly_the_pairs_that_have_gone_far_enough(
    difference: float, moved: float, gradient: float
) -> None:
    sampled = numbers(-2.0, -1.0)
    seen = batch(numbers(difference, 0.0), sampled, [0, 0])
    gradients = gradient_of(P3o(clip=0.2), sampled + numbers(moved / 2, -moved / 2), seen)
    torch.testing.assert_close(gradients, numbers(gradient, -gradient))


def test_on_the_first_step_every_pair_is_trained_on_whatever_the_engine_says_of_it() -> None:
    """The gap of 0.5 nats between engine and learner exceeds the clip. It changes pair weights but clips nothing."""
    old = numbers(-2.0, -1.0, -1.5)
    seen = replace(batch(numbers(1.0, 0.0, -1.0), old, [0, 0, 0]), behaviour=old - numbers(0.5, 0.0, -0.5))
    _, watch = P3o(clip=0.2)(old, seen)
    assert watch["clipped_share"].tolist() == [0.0] and watch["pair_moved"].tolist() == [0.0]
    # half the reward difference of each of the three pairs, weighted by exp(0.5), 1 and exp(-0.5)
    first, outer, last = 0.5 * math.exp(0.5), 1.0, 0.5 * math.exp(-0.5)
    wanted = numbers(-first - outer, first - last, last + outer) / 3
    torch.testing.assert_close(gradient_of(P3o(clip=0.2), old, seen), wanted)


def test_no_pair_weighs_more_than_the_ceiling_and_no_gradient_flows_through_its_weight() -> None:
    old = numbers(-2.0, -1.0)
    seen = replace(batch(numbers(1.0, 0.0), old, [0, 0]), behaviour=old - 3.0)
    gradient = gradient_of(P3o(importance_ceiling=1.5), old, seen)
    torch.testing.assert_close(gradient, numbers(-0.75, 0.75))


def test_in_a_later_step_on_another_engines_draws_the_expected_update_is_still_the_exact_policy_gradient() -> None:
    worth, engine, old = numbers(1.0, 0.0, -2.0), numbers(0.5, 0.3, 0.2).log(), numbers(0.4, 0.4, 0.2).log()
    logits = numbers(0.3, -0.2, 0.9).requires_grad_()
    log_prob = logits.log_softmax(0)
    (exact,) = torch.autograd.grad((log_prob.exp() * worth).sum(), logits, retain_graph=True)
    total = torch.zeros((), dtype=torch.float64)
    for actions in map(list, product(range(3), repeat=2)):
        seen = replace(batch(worth[actions], old[actions], [0, 0]), behaviour=engine[actions])
        losses, _ = P3o(clip=10.0, importance_ceiling=100.0)(log_prob[actions], seen)
        total = total + engine[actions].sum().exp() * losses.sum()
    (expected,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(-expected, exact)


def random_round() -> tuple[TokenBatch, Tensor]:
    generator = torch.Generator().manual_seed(3)
    rewards, sampled, moved, apart = (torch.randn(7, dtype=torch.float64, generator=generator) for _ in range(4))
    return batch(rewards, sampled - 3, [0, 0, 0, 1, 1, 1, 1], sampled - 3 + apart), sampled - 3 + 0.3 * moved


def test_a_reward_added_to_all_completions_of_a_prompt_changes_neither_loss_nor_gradient() -> None:
    seen, log_prob = random_round()
    shifted = replace(seen, reward=seen.reward + numbers(5, 5, 5, -9, -9, -9, -9))
    objective = P3o(kl=0.1)
    torch.testing.assert_close(objective(log_prob, shifted)[0], objective(log_prob, seen)[0])
    torch.testing.assert_close(gradient_of(objective, log_prob, shifted), gradient_of(objective, log_prob, seen))


def test_the_order_of_the_completions_does_not_matter() -> None:
    seen, log_prob = random_round()
    order = torch.tensor([2, 0, 1, 6, 4, 3, 5])
    mixed = replace(
        seen, reward=seen.reward[order], behaviour=seen.behaviour[order], old=seen.old[order], reference=None
    )
    torch.testing.assert_close(P3o()(log_prob[order], mixed)[0], P3o()(log_prob, seen)[0])


def test_on_policy_it_is_reinforce_with_the_others_as_the_baseline() -> None:
    seen, _ = random_round()
    better = LeaveOneOut().of_completions(make_resources(), scored(seen.reward, [3, 4]))
    gradient = gradient_of(P3o(), seen.old, seen)
    torch.testing.assert_close(gradient, -better / numbers(3, 3, 3, 4, 4, 4, 4))  # a mean over a group's completions


def test_the_expected_update_is_the_exact_gradient_of_the_reward_less_the_kl() -> None:
    worth, reference, beta = numbers(1.0, 0.0, -2.0), numbers(0.2, 0.3, 0.5).log(), 0.4
    logits = numbers(0.3, -0.2, 0.9).requires_grad_()
    log_prob = logits.log_softmax(0)
    value = (log_prob.exp() * (worth - beta * (log_prob - reference))).sum()
    (exact,) = torch.autograd.grad(value, logits, retain_graph=True)
    total = torch.zeros((), dtype=torch.float64)
    for actions in map(list, product(range(3), repeat=3)):
        drawn = log_prob[actions]
        losses, _ = P3o(kl=beta)(drawn, batch(worth[actions], drawn.detach(), [0, 0, 0], reference[actions]))
        total = total + drawn.detach().sum().exp() * losses.sum()
    (expected,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(-expected, exact)


def test_the_kl_belongs_to_the_reward_summed_over_the_tokens_of_a_completion() -> None:
    completion = torch.tensor([0, 0, 1])
    seen = make_batch(
        advantage=torch.zeros(3),
        behaviour=numbers(-1.0, -2.0, -3.0),
        old=numbers(-1.0, -2.0, -3.0),
        reference=numbers(-1.5, -2.5, -1.0),
        completion=completion,
        reward=numbers(1.0, 2.0),
        group=torch.tensor([0, 0]),
    )
    # rewards less the KL: 1 - 0.5 * (0.5 + 0.5) = 0.5 and 2 - 0.5 * -2 = 3
    gradient = gradient_of(P3o(kl=0.5), numbers(-3.0, -3.0), seen)
    torch.testing.assert_close(gradient, numbers(1.25, -1.25))


def test_a_group_of_one_has_no_loss_and_all_that_is_watched_is_one_value_a_group_without_gradient() -> None:
    sampled = numbers(-1.0, -2.0, -1.5)
    seen = batch(numbers(1.0, 0.0, 4.0), sampled, [0, 0, 1])
    loss, watch = P3o()((sampled + 0.1).requires_grad_(), seen)
    assert loss.shape == (2,) and loss[1] == 0 and not loss[0].isnan()
    assert all(value.shape == (2,) and not value.requires_grad for value in watch.values())
