"""Pairs made from rewards: the best and the worst of each group, ties, and groups without a pair."""

import pytest

from models.parts.select.best_worst import BestWorst
from tests.support.tiny_batches import numbers
from tests.support.tiny_models import scored


def test_of_each_group_the_best_stands_before_the_worst() -> None:
    kept = BestWorst()(scored(numbers(0.2, 0.9, 0.1, 3.0, 5.0), [3, 2]))
    assert kept.tolist() == [1, 2, 4, 3]


@pytest.mark.parametrize("spread", [0.0, 1e-4])
def test_a_group_that_does_not_spread_past_the_tolerance_makes_no_pair(spread: float) -> None:
    assert BestWorst(tolerance=1e-4)(scored(numbers(1.0, 1.0 + spread, 0.0, 1.0), [2, 2])).tolist() == [3, 2]


def test_of_equals_the_first_is_taken() -> None:
    assert BestWorst()(scored(numbers(1.0, 0.0, 1.0, 0.0), [4])).tolist() == [0, 1]


def test_a_completion_that_is_alone_makes_no_pair() -> None:
    assert BestWorst()(scored(numbers(1.0, 2.0), [1, 1])).tolist() == []
