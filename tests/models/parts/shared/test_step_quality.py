"""The quality of partial solutions, by hand and at its bounds."""

import itertools

import pytest

from models.parts.shared.step_quality import step_quality, step_weight


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
def test_along_a_right_solution_it_rises_evenly_to_one(steps: int) -> None:
    value = 0.0
    for number in range(1, steps + 1):
        value = step_quality(value, steps - number, 0.0)
        assert value == pytest.approx(number / steps)


def test_by_hand() -> None:
    assert step_weight(0.25, 2, 0.0) == pytest.approx(0.25) and step_weight(0.25, 2, 1.0) == pytest.approx(-0.25)
    assert step_quality(0.5, 1, 0.5) == 0.5 and step_quality(0.25, 2, 1.0) == pytest.approx(0.0)
    assert step_quality(0.1, 0, 1.0) == 0.0


def test_it_stays_within_zero_and_one_and_is_one_at_a_right_answer_alone() -> None:
    for previous, distance, wrong in itertools.product((0.0, 0.3, 0.9), (0, 1, 5), (0.0, 0.4, 1.0)):
        value = step_quality(previous, distance, wrong)
        assert 0.0 <= value <= 1.0 and (value == 1.0) == (distance == 0 and wrong == 0.0)
