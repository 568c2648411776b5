"""The reward `distance`: values by hand, limits, points that cannot be read, and right points."""

import pytest

from models.method.attempt import Attempt
from models.method.problem import Problem
from models.parts.rewards.rules.distance import Distance
from tests.support.malformed_texts import malformed, rollout
from tests.support.tiny_resources import make_resources

HERE = make_resources()
POINT = Problem("p", "next", "17 9")


def values(reward: Distance, *texts: str, problem: Problem = POINT) -> list[float]:
    result: list[float] = reward(HERE, [rollout(text, problem) for text in texts]).tolist()
    return result


def test_the_value_falls_with_the_distance() -> None:
    made = values(Distance(reach=10.0), "17 9", "20 13", "17 19", "100 100", "x 17 , y 10")
    assert made == pytest.approx([1.0, 0.5, 0.0, 0.0, 0.9])


def test_another_number_of_coordinates_a_cut_and_words_are_worth_nothing() -> None:
    assert values(Distance(), "17", "17 9 1", "words", "") == [0.0] * 4
    assert float(Distance()(HERE, [rollout("17 9", POINT, finished=False)])[0]) == 0.0
    assert values(Distance(), "0.5", problem=Problem("q", "", "0.5")) == [1.0]
    made = Distance()(HERE, malformed(POINT))
    assert bool(((made >= 0) & (made <= 1)).all())


def test_a_right_point_is_within_a_distance() -> None:
    attempts = [Attempt(POINT, text, True) for text in ("17 9", "18 10", "19 9", "")]
    assert Distance().right(attempts) == [True, True, False, False]
    assert Distance(right_within=2.0).right(attempts) == [True, True, True, False]
    assert Distance().accepts([POINT, Problem("q", "", "here")]) == [True, False]


def test_the_stated_answer_is_read_if_the_recipe_sets_it() -> None:
    reward = Distance(reads="answer")
    assert values(reward, "from 3 4 #### 17 9", "17 9") == [1.0, 0.0]
    assert reward.stated(POINT) == "#### 17 9" and Distance().stated(POINT) == "17 9"
