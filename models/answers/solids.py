"""Solids from a small language of boxes, as the cells of a cube that they fill.

    box 0 0 0 6 4 2 ; box 1 1 2 2 2 4 ; cut 4 0 0 1 4 1

A line is an operation, a corner and a size, in cells along three axes: left to right, front to back, bottom to top.
`box` fills cells and `cut` empties them, in the order of the text. Lines are separated by `;` or line breaks.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

EDGE = 8
"""Cells of the cube along each axis."""
MOST_LINES = 100
"""Maximum number of operations."""
BOX, CUT = "box", "cut"
_LINE = re.compile(rf"({BOX}|{CUT})((?: \d){{6}})")

Cells = NDArray[np.bool_]
"""Which cells are filled, [EDGE, EDGE, EDGE]: left to right, front to back, bottom to top."""


class UnreadableSolidError(ValueError):
    """A text that is not a solid of the language."""


def solid(text: str) -> Cells:
    """Return the cells that a program fills.

    Raises:
        UnreadableSolidError: a line cannot be read or leaves the cube, or nothing is left.
    """
    cells = np.zeros((EDGE, EDGE, EDGE), bool)
    lines = [" ".join(line.split()) for line in re.split(r"[;\n]", text)]
    lines = [line for line in lines if line]
    if len(lines) > MOST_LINES:
        raise UnreadableSolidError(f"{len(lines)} operations; at most {MOST_LINES} are read")
    for number, line in enumerate(lines, 1):
        if (match := _LINE.fullmatch(line)) is None:
            raise UnreadableSolidError(f"operation {number}: write box or cut, a corner and a size, six digits in all")
        x, y, z, wide, deep, high = map(int, match[2].split())
        if 0 in (wide, deep, high) or max(x + wide, y + deep, z + high) > EDGE:
            raise UnreadableSolidError(f"operation {number}: the size is zero, or leaves the cube of {EDGE} cells")
        cells[x : x + wide, y : y + deep, z : z + high] = match[1] == BOX
    if not cells.any():
        raise UnreadableSolidError("no cell is filled")
    return cells


def overlap(first: Cells, second: Cells) -> float:
    """Return the volume that two solids share over the volume of both together."""
    return float((first & second).sum() / (first | second).sum())


def views(cells: Cells) -> NDArray[np.float64]:
    """Return a solid as seen from the front, from above and from the right, [3, EDGE, EDGE].

    A value is the distance to the first filled cell, from 0 (at once) to 1 (none).
    """
    return np.stack(
        [
            _depth(cells.transpose(2, 0, 1)[::-1]),  # rows from the top, columns from the left
            _depth(cells.transpose(1, 0, 2)[::-1, :, ::-1]),  # rows from the back, seen downwards
            _depth(cells.transpose(2, 1, 0)[::-1, :, ::-1]),  # rows from the top, columns from the front
        ]
    )


def _depth(cells: Cells) -> NDArray[np.float64]:
    """Return the share of cells before the first filled one along the last axis."""
    filled = cells.any(-1)
    return np.where(filled, cells.argmax(-1) / EDGE, 1.0)
