"""The group-relative advantage: its invariances, and the published losses with each of its scales."""

from typing import Literal

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.shared.group_statistics import group_mean
from models.recipes.load import load_recipe
from tests.support.published_losses import SIZES, assert_same, clipped_loss, loss_of_parts, random_round
from tests.support.tiny_models import scored
from tests.support.tiny_resources import make_resources


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand() -> None:
    rewards = numbers(1, 0, 0, 1, 5, 3)  # deviations of the groups: 1/2 and 1
    advantages = GroupRelative(epsilon=0.0).of_completions(make_resources(), scored(rewards, [4, 2]))
    torch.testing.assert_close(advantages, numbers(1, -1, -1, 1, 1, -1))
    torch.testing.assert_close(
        GroupRelative(scale="none").of_completions(make_resources(), scored(rewards, [4, 2])),
        numbers(0.5, -0.5, -0.5, 0.5, 1, -1),
    )


def test_the_weights_of_difficulty_by_hand() -> None:
    rewards = numbers(1, 0, 0, 0, 1, 1, 1, 0.2)  # mean rewards: 1/4 and 4/5
    given, plain = (
        scored(rewards, [4, 4]),
        GroupRelative(scale="none").of_completions(make_resources(), scored(rewards, [4, 4])),
    )
    middle = GroupRelative(scale="none", difficulty="middle").of_completions(make_resources(), given)
    torch.testing.assert_close(middle, plain * numbers(*[0.75] * 4, *[0.64] * 4), rtol=0, atol=1e-12)
    hard = GroupRelative(scale="none", difficulty="hard").of_completions(make_resources(), given)
    torch.testing.assert_close(hard, plain * numbers(*[0.75] * 4, *[0.2] * 4).exp(), rtol=0, atol=1e-12)
    torch.testing.assert_close(group_mean(hard, given.groups), torch.zeros_like(hard), rtol=0, atol=1e-12)


@pytest.mark.parametrize("difficulty", ["middle", "hard"])
@pytest.mark.parametrize("reward", [-0.5, 1.5])
def test_difficulty_needs_rewards_from_zero_to_one(difficulty: Literal["middle", "hard"], reward: float) -> None:
    given = scored(numbers(reward, 0.5), [2])
    with pytest.raises(UserError, match=rf"advantage\.by: .* reward total is {reward}; difficulty: {difficulty}"):
        GroupRelative(difficulty=difficulty).of_completions(make_resources(), given)


@pytest.mark.parametrize("scale", ["group", "none"])
def test_the_mean_of_every_group_is_zero(scale: Literal["group", "batch", "mean", "none"]) -> None:
    rewards = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    advantages = scored(rewards, [3, 4, 5])
    assert (
        group_mean(GroupRelative(scale=scale).of_completions(make_resources(), advantages), advantages.groups)
        .abs()
        .max()
        < 1e-14
    )


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_reward_added_to_all_completions_of_a_prompt_changes_nothing(
    scale: Literal["group", "batch", "mean", "none"],
) -> None:
    rewards, shift = numbers(1, 0, 2, 5, 3), numbers(7, 7, 7, -40, -40)
    advantage = GroupRelative(scale=scale)
    torch.testing.assert_close(
        advantage.of_completions(make_resources(), scored(rewards + shift, [3, 2])),
        advantage.of_completions(make_resources(), scored(rewards, [3, 2])),
        rtol=0,
        atol=1e-12,
    )


def test_divided_by_the_deviation_the_unit_of_the_reward_does_not_matter() -> None:
    rewards = numbers(1, 0, 2, 5, 3)
    advantage = GroupRelative(epsilon=0.0)
    torch.testing.assert_close(
        advantage.of_completions(make_resources(), scored(10 * rewards, [3, 2])),
        advantage.of_completions(make_resources(), scored(rewards, [3, 2])),
    )


@pytest.mark.parametrize("size", [3, 7, 8, 64, 1000])
@pytest.mark.parametrize("value", [0.1, -0.7, 1e-3, 123.456])
def test_a_flat_group_has_no_advantage_however_its_reward_rounds(value: float, size: int) -> None:
    rewards = torch.full((size,), value)  # in float32, the mean of equal values may differ from the value
    for scale in ("group", "batch", "none"):
        advantages = GroupRelative(scale=scale).of_completions(make_resources(), scored(rewards, [size]))
        assert advantages.dtype == torch.float32 and advantages.count_nonzero() == 0


def test_groups_do_not_see_each_other() -> None:
    alone = GroupRelative().of_completions(make_resources(), scored(numbers(1, 0, 2), [3]))
    together = GroupRelative().of_completions(make_resources(), scored(numbers(1, 0, 2, 100, -100), [3, 2]))
    torch.testing.assert_close(together[:3], alone)


def test_the_deviation_of_n_less_one_is_the_estimate_that_published_code_takes() -> None:
    rewards = numbers(1, 0, 0.5, 1, 5, 3)
    wanted = torch.cat([(part - part.mean()) / (part.std() + 1e-3) for part in rewards.split([4, 2])])
    advantages = GroupRelative(deviation="n-1", epsilon=1e-3).of_completions(make_resources(), scored(rewards, [4, 2]))
    torch.testing.assert_close(advantages, wanted)
    assert GroupRelative(deviation="n-1").of_completions(make_resources(), scored(numbers(3.0), [1])).tolist() == [0.0]


def test_divided_by_the_deviation_of_the_batch_prompts_keep_their_proportion() -> None:
    rewards = numbers(1, 0, 0.2, 0.0, 3, 3)
    advantages = GroupRelative(scale="batch", epsilon=0.0).of_completions(make_resources(), scored(rewards, [2, 2, 2]))
    torch.testing.assert_close(advantages, numbers(0.5, -0.5, 0.1, -0.1, 0, 0) / rewards.std(unbiased=False))


def test_scaled_by_the_batch_loss_and_gradient_are_trls() -> None:
    """The expected loss reimplements TRL 1.16's GRPOTrainer with `scale_rewards="batch"` and `loss_type="dapo"`."""
    held, log_prob, old = random_round()
    rewards = held.rewards.view(-1, SIZES[0])
    advantage = (rewards - rewards.mean(1, keepdim=True)).flatten() / (rewards.flatten().std() + 1e-4)
    wanted = clipped_loss(advantage[:, None], log_prob, old)
    part = GroupRelative(scale="batch", deviation="n-1")
    assert_same(loss_of_parts(part, Grpo(kl=0.0), held, log_prob, old, "token"), wanted)


def test_of_one_group_the_batch_is_the_group() -> None:
    held = scored(numbers(1, 0, 0.5, 4), [4])
    for deviation in ("n", "n-1"):
        torch.testing.assert_close(
            GroupRelative(scale="batch", deviation=deviation).of_completions(make_resources(), held),
            GroupRelative(deviation=deviation).of_completions(make_resources(), held),
        )


def test_divided_by_the_mean_a_prompt_weighs_by_how_rarely_it_is_solved() -> None:
    """One of four is right: its advantage is (1 - 1/4) / (1/4) = 3, and -1 if wrong. If all are right, it is 0."""
    advantages = GroupRelative(scale="mean", epsilon=0.0).of_completions(
        make_resources(), scored(numbers(1, 0, 0, 0, 1, 1), [4, 2])
    )
    torch.testing.assert_close(advantages, numbers(3, -1, -1, -1, 0, 0))
    never = GroupRelative(scale="mean").of_completions(make_resources(), scored(numbers(0, 0), [2]))
    assert never.tolist() == [0.0, 0.0]


def test_scaled_by_the_mean_loss_and_gradient_are_the_published_ones() -> None:
    """The expected loss reimplements the code of MaxRL's authors, `compute_maxrl_outcome_advantage`."""
    held, log_prob, old = random_round(torch.tensor([1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0], dtype=torch.float64))
    rewards = held.rewards.view(-1, SIZES[0])
    mean = rewards.mean(1, keepdim=True)
    wanted = clipped_loss(((rewards - mean) / (mean + 1e-6)).flatten()[:, None], log_prob, old)
    part = GroupRelative(scale="mean", epsilon=1e-6)
    assert_same(loss_of_parts(part, Grpo(kl=0.0), held, log_prob, old, "token"), wanted)


def test_a_mean_of_rewards_that_may_be_negative_divides_nothing() -> None:
    with pytest.raises(UserError, match=r"scale is mean.* problem p1 has a completion of reward -1"):
        GroupRelative(scale="mean").of_completions(make_resources(), scored(numbers(1, 0, 0.5, -1), [2, 2]))
    with pytest.raises(UserError, match=r"advantage.*kl_in_reward must be 0"):
        load_recipe("grpo", ["advantage.scale=mean", "advantage.kl_in_reward=0.1"])
