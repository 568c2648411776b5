"""Baselines: leave-one-out, the group's mean and a fixed value, and the gradients of the methods that use them."""

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from torch import Tensor

from models.learner.reduce import Normalisation, token_weights
from models.method.advantage import CompletionAdvantage
from models.parts.advantage.group_relative import GroupRelative
from models.parts.advantage.leave_one_out import LeaveOneOut
from models.parts.advantage.reward import FixedBaseline, NoAdvantage
from models.parts.objective.grpo import Grpo
from models.parts.objective.reinforce import Reinforce
from models.parts.shared.group_statistics import group_mean
from models.parts.shared.importance import ImportanceSettings
from tests.support.tiny_batches import make_batch
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


REWARDS = numbers(1.0, 0.0, 0.25, -2.0, 5.0, 3.0, 3.5)
SIZES = [4, 3]


def test_leave_one_out_is_the_reward_less_the_mean_of_the_others() -> None:
    advantages = LeaveOneOut().of_completions(make_resources(), scored(numbers(1, 0, 5, 7, 3, 8), [2, 3, 1]))
    torch.testing.assert_close(
        advantages, numbers(1, -1, 0, 3, -3, 0)
    )  # the third: 5 - (7 + 3) / 2; the last has no others in its group


def test_leave_one_out_agrees_with_leaving_each_one_out() -> None:
    groups = scored(REWARDS, SIZES).groups
    plain = [
        float(reward)
        - float(torch.cat([REWARDS[:i], REWARDS[i + 1 :]])[torch.cat([groups[:i], groups[i + 1 :]]) == g].mean())
        for i, (reward, g) in enumerate(zip(REWARDS, groups, strict=True))
    ]
    torch.testing.assert_close(LeaveOneOut().of_completions(make_resources(), scored(REWARDS, SIZES)), numbers(*plain))


def test_leave_one_out_is_the_distance_from_the_mean_times_g_over_g_less_one() -> None:
    held = scored(REWARDS, SIZES)
    factor = numbers(*[4 / 3] * 4, *[3 / 2] * 3)
    torch.testing.assert_close(
        LeaveOneOut().of_completions(make_resources(), held),
        factor * GroupRelative(scale="none").of_completions(make_resources(), held),
    )


def test_grpo_is_the_distance_from_the_mean_over_the_deviation() -> None:
    held = scored(REWARDS, SIZES)
    deviation = torch.cat([part.std(unbiased=False).expand(len(part)) for part in REWARDS.split(SIZES)])
    torch.testing.assert_close(
        GroupRelative(epsilon=0.0).of_completions(make_resources(), held),
        GroupRelative(scale="none").of_completions(make_resources(), held) / deviation,
    )


def test_of_two_completions_grpo_says_one_and_minus_one_and_leave_one_out_their_difference() -> None:
    held = scored(numbers(0.3, 0.9), [2])
    torch.testing.assert_close(GroupRelative(epsilon=0.0).of_completions(make_resources(), held), numbers(-1, 1))
    torch.testing.assert_close(LeaveOneOut().of_completions(make_resources(), held), numbers(-0.6, 0.6))


@pytest.mark.parametrize("baseline", [0.0, 0.5, -3.0])
def test_a_fixed_baseline_differs_from_the_groups_own_by_a_constant_of_each_group(baseline: float) -> None:
    held = scored(REWARDS, SIZES)
    apart = FixedBaseline(baseline=baseline).of_completions(make_resources(), held) - GroupRelative(
        scale="none"
    ).of_completions(make_resources(), held)
    torch.testing.assert_close(apart, group_mean(REWARDS, held.groups) - baseline)


def test_without_an_advantage_every_completion_counts_one() -> None:
    assert NoAdvantage().of_completions(make_resources(), scored(REWARDS, SIZES)).tolist() == [1.0] * 7


LOGITS = numbers(0.3, -0.2, 0.9)
WORTH = numbers(1.0, 0.0, -2.0)


@pytest.mark.parametrize(("advantage", "share"), [(LeaveOneOut(), 1.0), (GroupRelative(scale="none"), 2 / 3)])
def test_leave_one_out_gives_the_whole_policy_gradient_and_the_mean_of_all_only_g_less_one_of_g(
    advantage: CompletionAdvantage, share: float
) -> None:
    logits = LOGITS.clone().requires_grad_()
    (exact,) = torch.autograd.grad((logits.softmax(0) * WORTH).sum(), logits)
    log_prob, total = logits.log_softmax(0), torch.zeros((), dtype=torch.float64)
    for actions in product(range(3), repeat=3):
        drawn = log_prob[list(actions)]
        better = advantage.of_completions(make_resources(), scored(WORTH[list(actions)], [3]))
        old = drawn.detach()
        losses, _ = Reinforce()(drawn, make_batch(better, old, old))
        total = total + old.sum().exp() * losses.mean()
    (expected,) = torch.autograd.grad(total, logits)
    torch.testing.assert_close(-expected, share * exact)


def gradient(
    advantage: Tensor,
    lengths: Sequence[int],
    normalisation: Normalisation,
    objective: ImportanceSettings,
    longest: int = 6,
) -> Tensor:
    """Return the gradient of the reduced loss with respect to each token's log-prob, for the policy that sampled."""
    log_prob = torch.linspace(-3, -0.5, sum(lengths), dtype=torch.float64).requires_grad_()
    completion = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    old = log_prob.detach()
    losses, _ = objective(log_prob, make_batch(advantage[completion], old, old, None, completion))
    weights = torch.cat(token_weights(lengths, normalisation, longest))
    return torch.autograd.grad((weights * losses).sum(), log_prob)[0]


UNEQUAL = [2, 5, 1, 3, 3, 6, 4]


@pytest.mark.parametrize("normalisation", ["token", "completion", "constant"])
def test_on_policy_the_width_of_the_clip_does_not_matter_and_all_are_reinforce(normalisation: Normalisation) -> None:
    advantage = LeaveOneOut().of_completions(make_resources(), scored(REWARDS, SIZES))
    plain = gradient(advantage, UNEQUAL, normalisation, Reinforce())
    for low, high in ((0.2, 0.2), (0.2, 0.28), (1e-9, 1e-9)):
        clipped = gradient(advantage, UNEQUAL, normalisation, Grpo(kl=0.0, clip_low=low, clip_high=high))
        torch.testing.assert_close(clipped, plain)


def test_completions_of_equal_length_make_all_normalisations_agree_up_to_the_longest_length() -> None:
    advantage = GroupRelative().of_completions(make_resources(), scored(REWARDS, SIZES))
    token, completion, constant = (
        gradient(advantage, [4] * 7, normalisation, Grpo(kl=0.0))
        for normalisation in ("token", "completion", "constant")
    )
    torch.testing.assert_close(token, completion)
    torch.testing.assert_close(constant, token * 4 / 6)


def test_completions_of_unequal_length_make_them_differ_by_the_length() -> None:
    advantage = GroupRelative().of_completions(make_resources(), scored(REWARDS, SIZES))
    token, completion, constant = (
        gradient(advantage, UNEQUAL, normalisation, Grpo(kl=0.0))
        for normalisation in ("token", "completion", "constant")
    )
    length = torch.repeat_interleave(torch.tensor(UNEQUAL), torch.tensor(UNEQUAL)).double()
    torch.testing.assert_close(completion, token * (24 / 7) / length)  # 24 tokens in 7 completions
    torch.testing.assert_close(constant, token * 24 / (7 * 6))


def test_dr_grpo_weighs_every_token_of_every_completion_by_its_distance_from_the_mean_alone() -> None:
    held = scored(REWARDS, SIZES)
    gradients = gradient(
        GroupRelative(scale="none").of_completions(make_resources(), held), UNEQUAL, "constant", Grpo(kl=0.0)
    )
    centred = REWARDS - torch.cat([part.mean().expand(len(part)) for part in REWARDS.split(SIZES)])
    torch.testing.assert_close(gradients, -centred.repeat_interleave(torch.tensor(UNEQUAL)) / (7 * 6))
