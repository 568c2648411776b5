"""Curves on common steps: values by hand, limiting cases, and the statistics of single points."""

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.aggregate import interquartile_mean, stratified_interval
from models.evaluation.learning_curves import areas, curve_band, on_common_steps


def test_a_curve_keeps_its_value_until_its_next_point() -> None:
    steps, curves = on_common_steps([[(1, 0.0), (3, 1.0), (6, 2.0)], [(5, 7.0), (2, 5.0), (4, 6.0)]])
    assert steps.tolist() == [2, 3, 4, 5]  # the second begins at 2 and ends at 5
    assert curves.tolist() == [[0.0, 1.0, 1.0, 1.0], [5.0, 5.0, 6.0, 7.0]]


def test_the_last_value_of_a_step_that_was_repeated_counts() -> None:
    _, curves = on_common_steps([[(1, 0.0), (1, 9.0), (2, 3.0)]])
    assert curves.tolist() == [[9.0, 3.0]]


def test_the_area_is_the_mean_height_between_unequal_steps() -> None:
    heights = areas(np.array([0, 1, 3]), np.array([[0.0, 1.0, 3.0], [2.0, 2.0, 2.0]]))
    assert heights == pytest.approx([1.5, 2.0])  # a straight line has the height of its middle
    assert areas(np.array([4]), np.array([[7.0]])) == pytest.approx([7.0])


@pytest.mark.rotating(of=6)
def test_of_a_single_training_the_band_is_its_curve() -> None:
    band = curve_band([[(1, 0.1), (2, 0.5)]])
    for values in (band.low, band.middle, band.high):
        assert values.tolist() == [0.1, 0.5]
    assert (band.last.low, band.last.estimate, band.last.high) == (0.5, 0.5, 0.5)


@pytest.mark.rotating(of=6)
def test_at_each_step_the_band_is_that_of_the_values_there() -> None:
    chance = np.random.default_rng(0)
    curves = chance.normal(size=(8, 3)).cumsum(axis=1)
    band = curve_band([list(enumerate(row)) for row in curves.tolist()], resamples=4000)
    for place in range(3):
        expected = stratified_interval(interquartile_mean, curves[:, place], resamples=4000)
        assert band.middle[place] == pytest.approx(expected.estimate, abs=1e-12)
        assert (band.low[place], band.high[place]) == pytest.approx((expected.low, expected.high), abs=0.12)


def test_a_training_that_diverged_does_not_move_the_middle_of_five() -> None:
    steady = [[(1, value), (2, value)] for value in (0.2, 0.3, 0.4)]
    assert curve_band([*steady, [(1, 0.1), (2, 0.1)], [(1, 1e9), (2, 1e9)]]).middle == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(
    ("trainings", "message"),
    [
        ([], "no points"),
        ([[(1, 0.0)], []], "no points"),
        ([[(1, float("nan"))]], "not finite"),
        ([[(1, 0.0), (2, 0.0)], [(5, 0.0)]], "one begins at 5, one ends at 2"),
    ],
)
def test_curves_that_cannot_be_compared_are_refused(trainings: list[list[tuple[int, float]]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        curve_band(trainings)
