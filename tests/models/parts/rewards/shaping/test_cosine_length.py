"""The reward `cosine_length`: values by hand, its order over lengths, and unfinished completions."""

import pytest
import torch

from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.shaping.cosine_length import CosineLength
from tests.support.tiny_resources import make_resources

RIGHT, WRONG = "#### 7", "#### 8"


def value(length: int, text: str, finished: bool = True, part: CosineLength | None = None) -> float:
    rollout = Rollout(Problem("p", "", "7"), 0, (5,) * length, torch.zeros(length), text, finished)
    return float((part or CosineLength(longest=12))(make_resources(), [rollout])[0])


def test_a_right_answer_by_hand() -> None:
    lengths = (0, 3, 4, 6, 8, 12)  # cosines 1, sqrt(1/2), 1/2, 0, -1/2, -1
    expected = [2.0, 1.0 + (1.0 + 0.5**0.5) / 2, 1.75, 1.5, 1.25, 1.0]
    assert [value(length, RIGHT) for length in lengths] == pytest.approx(expected)


def test_a_wrong_answer_by_hand() -> None:
    assert [value(length, WRONG) for length in (0, 4, 6, 8, 12)] == pytest.approx([-10.0, -7.5, -5.0, -2.5, 0.0])


def test_right_ones_fall_with_length_and_wrong_ones_rise_and_every_right_one_is_worth_more_than_any_wrong_one() -> None:
    right = [value(length, RIGHT) for length in range(13)]
    wrong = [value(length, WRONG) for length in range(13)]
    assert right == sorted(right, reverse=True) and wrong == sorted(wrong) and min(right) > max(wrong)


def test_beyond_the_longest_nothing_changes() -> None:
    assert value(500, RIGHT) == value(12, RIGHT) == 1.0 and value(500, WRONG) == value(12, WRONG) == 0.0


def test_one_that_did_not_end_is_worth_its_own_value_whatever_it_says_and_however_long() -> None:
    part = CosineLength(longest=12, cut=-3.5)
    assert {value(length, text, False, part) for length in (0, 6, 12) for text in (RIGHT, WRONG, "")} == {-3.5}


def test_where_short_and_long_are_alike_it_is_the_plain_verdict() -> None:
    part = CosineLength(right_short=1.0, right_long=1.0, wrong_short=0.0, wrong_long=0.0, cut=0.0)
    assert [value(length, RIGHT, part=part) for length in (1, 30)] == [1.0, 1.0]
    assert [value(length, WRONG, part=part) for length in (1, 30)] == [0.0, 0.0]


@pytest.mark.parametrize("text", ["", "\x00\udcff", "####", "#### seven", "#### " + "9" * 100_000, "{}" * 10_000])
@pytest.mark.parametrize("length", [0, 1, 100_000])
def test_what_states_no_answer_is_wrong_whatever_it_is(text: str, length: int) -> None:
    assert value(length, text) == value(length, WRONG)
