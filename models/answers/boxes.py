"""Boxes in an answer, as four numbers each: left, top, right and bottom edge. Intersection over union, and matching."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

MOST_BOXES = 256
"""Maximum number of boxes of a text; a text with more has none that can be read."""
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,9}(?:\.\d{1,9})?(?![\w.]*\d)")
Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge; right is greater than left, bottom than top."""


def numbers_in(text: str) -> list[float]:
    """Read the numbers of a text, in order; words and signs between them do not count."""
    return [float(number) for number in _NUMBER.findall(text)]


def boxes_in(text: str) -> list[Box] | None:
    """Read the boxes of a text, in order: all of its numbers, four for each.

    Words and signs between the numbers do not count: `3 4 12 13 ; 18 2 27 11` is `[[3, 4, 12, 13], [18, 2, 27, 11]]`.

    Returns:
        The boxes; None if there are none or more than MOST_BOXES, a number is left over, or a box has no area.
    """
    numbers = numbers_in(text)
    if not numbers or len(numbers) % 4 or len(numbers) > 4 * MOST_BOXES:
        return None
    edges = (numbers[start::4] for start in range(4))
    boxes: list[Box] = list(zip(*edges, strict=True))
    return boxes if all(right > left and bottom > top for left, top, right, bottom in boxes) else None


def overlaps(boxes: Sequence[Box], others: Sequence[Box]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Compute the intersection over union of every pair, [boxes, others], from 0 to 1."""
    first, second = np.asarray(boxes, float)[:, None], np.asarray(others, float)[None]
    corners = np.minimum(first[..., 2:], second[..., 2:]) - np.maximum(first[..., :2], second[..., :2])
    common = corners.clip(min=0.0).prod(-1)
    areas = [(each[..., 2:] - each[..., :2]).prod(-1) for each in (first, second)]
    shares: np.ndarray[tuple[int, int], np.dtype[np.float64]] = common / (areas[0] + areas[1] - common)
    return shares


def matched(boxes: Sequence[Box], others: Sequence[Box]) -> list[float]:
    """Return the intersection over union of the pairs of the best matching, [pairs]: each box is in one pair at most.

    The best matching has the largest sum.
    """
    from scipy.optimize import linear_sum_assignment  # not loaded to check a recipe

    shares = overlaps(boxes, others)
    rows, columns = linear_sum_assignment(shares, maximize=True)
    return [float(share) for share in shares[rows, columns]]
