"""Brevity relative to the right answers of the same group: values by hand, and the cases that get zero."""

import pytest
import torch

from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.shaping.relative_length import RelativeLength
from tests.support.tiny_resources import make_resources

RIGHT, WRONG = "#### 7", "#### 8"


def rollout(length: int, text: str, group: int = 0, finished: bool = True) -> Rollout:
    return Rollout(Problem(f"p{group}", "", "7"), group, (5,) * length, torch.zeros(length), text, finished)


def values(*rollouts: Rollout, patience: float = 1.0) -> list[float]:
    made: list[float] = RelativeLength(patience=patience)(make_resources(), list(rollouts)).tolist()
    return made


def test_by_hand() -> None:
    made = [rollout(10, RIGHT), rollout(20, RIGHT), rollout(30, RIGHT), rollout(4, WRONG)]  # mean 20; 3 of 4 are right
    assert values(*made) == pytest.approx([0.375, 0.0, -0.375, 0.0])
    assert values(*made, patience=2.0) == pytest.approx([0.28125, 0.0, -0.28125, 0.0])
    assert values(*made, patience=0.0) == pytest.approx([0.5, 0.0, -0.5, 0.0])


def test_a_wrong_answer_is_worth_nothing_and_moves_no_right_one_by_its_length() -> None:
    short = values(rollout(10, RIGHT), rollout(30, RIGHT), rollout(1, WRONG), rollout(2, WRONG))
    long = values(rollout(10, RIGHT), rollout(30, RIGHT), rollout(900, WRONG), rollout(700, WRONG, finished=False))
    assert short == long == pytest.approx([0.25, -0.25, 0.0, 0.0])


def test_the_rarer_right_answers_are_the_less_brevity_counts() -> None:
    def worth_of_the_shorter(wrong: int) -> float:
        return values(rollout(10, RIGHT), rollout(30, RIGHT), *[rollout(9, WRONG)] * wrong)[0]

    assert [worth_of_the_shorter(wrong) for wrong in (0, 2, 6)] == pytest.approx([0.5, 0.25, 0.125])


def test_the_right_answers_of_a_group_add_up_to_zero_where_none_is_twice_their_mean() -> None:
    lengths = [12, 15, 19, 22, 23]
    assert sum(values(*[rollout(length, RIGHT) for length in lengths])) == pytest.approx(0.0, abs=1e-6)


def test_beside_a_verifier_at_a_weight_below_one_every_right_answer_is_worth_more_than_any_wrong_one() -> None:
    made = [rollout(length, RIGHT) for length in (1, 2, 3, 5000)] + [rollout(1, WRONG), rollout(5000, WRONG)]
    worth = [1.0 + 0.9 * value for value in values(*made, patience=0.0)[:4]]
    assert min(worth) == pytest.approx(0.1) and values(*made)[4:] == [0.0, 0.0]


def test_an_only_right_answer_and_groups_without_any_are_worth_nothing_and_groups_do_not_meet() -> None:
    assert values(rollout(10, RIGHT), rollout(3, WRONG), rollout(3, WRONG, 1), rollout(5, WRONG, 1)) == [0.0] * 4
    mixed = values(rollout(10, RIGHT, 3), rollout(100, RIGHT, 8), rollout(30, RIGHT, 3), rollout(300, RIGHT, 8))
    assert mixed == pytest.approx([0.5, 0.5, -0.5, -0.5])


@pytest.mark.parametrize("text", ["", "\x00\udcff", "####", "#### seven", "#### " + "9" * 100_000, "{}" * 10_000])
@pytest.mark.parametrize("length", [0, 1, 50_000])
def test_what_states_no_answer_is_worth_nothing_whatever_it_is(text: str, length: int) -> None:
    assert values(rollout(length, text), rollout(10, RIGHT), rollout(30, RIGHT), patience=0.0) == [0.0, 0.5, -0.5]


def test_right_answers_of_no_tokens_are_worth_nothing() -> None:
    assert values(rollout(0, RIGHT), rollout(0, RIGHT)) == [0.0, 0.0]
