"""The Pareto front of mixtures: by hand, ties, and its table."""

from models.evaluation.bootstrap import Interval
from models.evaluation.front import WeightMixture, mixture_rows, on_front


def mixture(share: float, accuracy: float, diversity: float) -> WeightMixture:
    return WeightMixture(share, Interval(accuracy, accuracy, accuracy), Interval(diversity, diversity, diversity))


def test_a_mixture_that_another_surpasses_is_not_on_the_front() -> None:
    some = [mixture(0, 0.9, 0.1), mixture(0.5, 0.6, 0.6), mixture(0.75, 0.5, 0.5), mixture(1, 0.2, 0.9)]
    assert on_front(some) == [True, True, False, True]
    assert on_front([mixture(0, 0.9, 0.1), mixture(0.5, 0.9, 0.2)]) == [False, True]


def test_equal_mixtures_are_both_on_the_front() -> None:
    assert on_front([mixture(0, 0.5, 0.5), mixture(1, 0.5, 0.5)]) == [True, True]
    assert on_front([]) == []


def test_the_table_has_a_row_for_each_mixture() -> None:
    rows = mixture_rows([mixture(0, 0.5, 0.25), mixture(1, 0.4, 0.2)])
    assert rows[1:] == [
        ["0", "50.0% [50.0%, 50.0%]", "25.0% [25.0%, 25.0%]", "yes"],
        ["1", "40.0% [40.0%, 40.0%]", "20.0% [20.0%, 20.0%]", ""],
    ]
