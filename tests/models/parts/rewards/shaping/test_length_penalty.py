"""The reward for brevity: values by hand, wrong answers, equal lengths, and separate groups."""

import pytest
import torch

from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.shaping.length_penalty import LengthPenalty
from tests.support.tiny_resources import make_resources

RIGHT, WRONG = "#### 7", "#### 8"


def rollout(group: int, length: int, text: str) -> Rollout:
    return Rollout(Problem(f"p{group}", "", "7"), group, (5,) * length, torch.zeros(length), text, True)


def values(*rollouts: Rollout) -> list[float]:
    return LengthPenalty()(make_resources(), list(rollouts)).tolist()


def test_by_hand() -> None:
    rewards = values(rollout(0, 10, RIGHT), rollout(0, 20, RIGHT), rollout(0, 12, RIGHT), rollout(0, 15, RIGHT))
    assert rewards == pytest.approx([0.5, -0.5, 0.3, 0.0])


def test_a_wrong_answer_earns_nothing_by_being_short_and_loses_by_being_long() -> None:
    rewards = values(rollout(0, 10, WRONG), rollout(0, 20, WRONG), rollout(0, 12, WRONG), rollout(0, 18, WRONG))
    assert rewards == pytest.approx([0.0, -0.5, 0.0, -0.3])


def test_the_shortest_and_the_longest_are_those_of_all_completions_right_or_wrong() -> None:
    rewards = values(rollout(0, 10, WRONG), rollout(0, 20, WRONG), rollout(0, 15, RIGHT), rollout(0, 12, RIGHT))
    assert rewards == pytest.approx([0.0, -0.5, 0.0, 0.3])


def test_completions_of_equal_length_and_those_that_are_alone_are_worth_nothing() -> None:
    assert values(rollout(0, 4, RIGHT), rollout(0, 4, WRONG), rollout(1, 9, RIGHT)) == [0.0, 0.0, 0.0]


def test_groups_do_not_see_each_other_even_where_they_answer_the_same_prompt_and_stand_mixed() -> None:
    shorter = [rollout(0, length, RIGHT) for length in (1, 2, 5)]
    two = [rollout(1, length, RIGHT) for length in (100, 300)]
    mixed = LengthPenalty()(make_resources(), [shorter[0], two[0], shorter[1], two[1], shorter[2]])
    assert mixed.tolist() == pytest.approx([0.5, 0.5, 0.25, -0.5, -0.5])


def test_no_value_leaves_the_bounds_and_a_right_one_is_never_worth_less_than_a_wrong_one_of_its_length() -> None:
    lengths = torch.randint(1, 40, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    right = values(*[rollout(number % 7, length, RIGHT) for number, length in enumerate(lengths)])
    wrong = values(*[rollout(number % 7, length, WRONG) for number, length in enumerate(lengths)])
    assert min(wrong) >= -0.5 and max(right) <= 0.5 and max(wrong) == 0.0
    assert all(first >= other for first, other in zip(right, wrong, strict=True)) and right != wrong
