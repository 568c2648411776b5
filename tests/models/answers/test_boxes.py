"""Boxes: reading, intersection over union against a count of pixels, and matching against all permutations."""

import math
from itertools import permutations
from random import Random

import numpy as np
import pytest

from models.answers.boxes import MOST_BOXES, Box, boxes_in, matched, overlaps


def drawn(random: Random, size: int = 12) -> Box:
    left, right = sorted(random.sample(range(size), 2))
    top, bottom = sorted(random.sample(range(size), 2))
    return left, top, right, bottom


def counted(box: Box, other: Box, size: int = 12) -> float:
    """Count the unit squares of two boxes with whole edges."""
    cells = [
        {(x, y) for x in range(size) for y in range(size) if each[0] <= x < each[2] and each[1] <= y < each[3]}
        for each in (box, other)
    ]
    return len(cells[0] & cells[1]) / len(cells[0] | cells[1])


def test_overlaps_are_those_of_counted_squares_in_both_orders() -> None:
    random = Random(0)
    boxes, others = [drawn(random) for _ in range(30)], [drawn(random) for _ in range(20)]
    shares = overlaps(boxes, others)
    expected = [[counted(box, other) for other in others] for box in boxes]
    np.testing.assert_allclose(shares, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(overlaps(others, boxes), shares.T, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.diag(overlaps(boxes, boxes)), 1.0, rtol=0, atol=1e-12)
    moved = [[(7 + 3 * edge) for edge in box] for box in boxes]  # the unit and the origin do not matter
    others_moved = [[(7 + 3 * edge) for edge in box] for box in others]
    np.testing.assert_allclose(overlaps(moved, others_moved), shares, rtol=0, atol=1e-12)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (3, 3), (2, 4), (4, 2), (5, 1)])
def test_the_matching_is_the_best_of_all(count: int, expected: int) -> None:
    random = Random(count * 10 + expected)
    for _ in range(20):
        boxes, others = [drawn(random) for _ in range(count)], [drawn(random) for _ in range(expected)]
        few, many = sorted((boxes, others), key=len)
        best = max(
            math.fsum(counted(box, other) for box, other in zip(few, chosen, strict=True))
            for chosen in permutations(many, len(few))
        )
        pairs = matched(boxes, others)
        assert len(pairs) == min(count, expected)
        assert sum(pairs) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "3 4 12 13 ; 18 2 27 11",
        "[[3, 4, 12, 13], [18, 2, 27, 11]]",
        '[{"bbox_2d": [3, 4, 12, 13]}, {"bbox_2d": [18, 2, 27, 11], "label": "red"}]',
        "<box>3,4,12,13</box><box>18,2,27,11</box>",
        "(3,4)-(12,13) and (18,2)-(27,11)",
        "3.0 4.0 12.0 13.0\n18.0 2.0 27.0 11.0",
    ],
)
def test_forms_of_boxes(text: str) -> None:
    assert boxes_in(text) == [(3, 4, 12, 13), (18, 2, 27, 11)]


@pytest.mark.parametrize(
    "text",
    ["", "none", "3 4 12", "3 4 12 13 5", "3 4 3 13", "12 4 3 13", "3 13 12 4", " 1 2 3 4" * (MOST_BOXES + 1)],
    ids=["empty", "no numbers", "three", "five", "no width", "turned over", "upside down", "too many"],
)
def test_what_holds_no_boxes(text: str) -> None:
    assert boxes_in(text) is None


def test_numbers_may_be_negative_or_broken() -> None:
    assert boxes_in("-3 -2.5 0.25 4") == [(-3, -2.5, 0.25, 4)]
    assert boxes_in("v2 3 4 12 13") == [(3, 4, 12, 13)]
