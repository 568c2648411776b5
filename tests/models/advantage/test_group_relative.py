"""What must be true of the group-relative advantage, each test named as the theorem it checks."""

import pytest
import torch
from tiny_models import scored

from models.advantage.group_relative import GroupRelative
from models.loop.rollout import group_mean


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_by_hand():
    rewards = numbers(1, 0, 0, 1, 5, 3)  # deviations of the groups: 1/2 and 1
    found = GroupRelative(epsilon=0.0).of_completions(None, scored(rewards, [4, 2]))
    torch.testing.assert_close(found, numbers(1, -1, -1, 1, 1, -1))
    torch.testing.assert_close(
        GroupRelative(scale="none").of_completions(None, scored(rewards, [4, 2])), numbers(0.5, -0.5, -0.5, 0.5, 1, -1)
    )


@pytest.mark.parametrize("scale", ["group", "none"])
def test_the_mean_of_every_group_is_zero(scale):
    rewards = torch.randn(12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = scored(rewards, [3, 4, 5])
    assert group_mean(GroupRelative(scale=scale).of_completions(None, found), found.groups).abs().max() < 1e-14


@pytest.mark.parametrize("scale", ["group", "none"])
def test_a_reward_added_to_all_completions_of_a_prompt_changes_nothing(scale):
    rewards, shift = numbers(1, 0, 2, 5, 3), numbers(7, 7, 7, -40, -40)
    advantage = GroupRelative(scale=scale)
    torch.testing.assert_close(
        advantage.of_completions(None, scored(rewards + shift, [3, 2])),
        advantage.of_completions(None, scored(rewards, [3, 2])),
        rtol=0,
        atol=1e-12,
    )


def test_divided_by_the_deviation_the_unit_of_the_reward_does_not_matter():
    rewards = numbers(1, 0, 2, 5, 3)
    advantage = GroupRelative(epsilon=0.0)
    torch.testing.assert_close(
        advantage.of_completions(None, scored(10 * rewards, [3, 2])),
        advantage.of_completions(None, scored(rewards, [3, 2])),
    )


def test_a_flat_group_has_no_advantage_even_where_its_mean_is_not_exact():
    rewards = torch.full((7,), 0.1)  # in float32 the mean of seven tenths is not a tenth
    assert GroupRelative().of_completions(None, scored(rewards, [7])).abs().max() < 1e-3


def test_groups_do_not_see_each_other():
    alone = GroupRelative().of_completions(None, scored(numbers(1, 0, 2), [3]))
    together = GroupRelative().of_completions(None, scored(numbers(1, 0, 2, 100, -100), [3, 2]))
    torch.testing.assert_close(together[:3], alone)


def test_the_deviation_of_n_less_one_is_the_estimate_that_published_code_takes():
    rewards = numbers(1, 0, 0.5, 1, 5, 3)
    wanted = torch.cat([(part - part.mean()) / (part.std() + 1e-3) for part in rewards.split([4, 2])])
    found = GroupRelative(deviation="n-1", epsilon=1e-3).of_completions(None, scored(rewards, [4, 2]))
    torch.testing.assert_close(found, wanted)
    assert GroupRelative(deviation="n-1").of_completions(None, scored(numbers(3.0), [1])).tolist() == [0.0]
