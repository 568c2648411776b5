"""A text grid: walls, a start, a goal; moves, and the distance of every cell to the goal.

A.#.      cells are named as in chess, by the column's letter and the row's number from the top: A is at a1
..#.      # is a wall, G the goal
...G
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from models.base.pictures import decoded, png_of

if TYPE_CHECKING:
    from PIL.Image import Image

Cell = tuple[int, int]
"""Row and column, from 0 at the top left."""

MOVES: dict[str, Cell] = {"u": (-1, 0), "d": (1, 0), "l": (0, -1), "r": (0, 1)}
WORDS = {"up": "u", "down": "d", "left": "l", "right": "r", **{move: move for move in MOVES}}
"""Words that a policy may use for a move."""


class Grid:
    """A rectangle of cells."""

    def __init__(self, rows: Sequence[str]) -> None:
        """Parse the grid.

        Raises:
            ValueError: rows differ in length, or lack a start or a goal.
        """
        self.rows = tuple(rows)
        if len({len(row) for row in rows}) != 1:
            raise ValueError("the rows of the grid are not of one length")
        marks = {mark: [at for at in self._cells() if self[at] == mark] for mark in "AG"}
        if any(len(places) != 1 for places in marks.values()):
            raise ValueError("the grid needs one start A and one goal G")
        self.start, self.goal = marks["A"][0], marks["G"][0]

    def __getitem__(self, cell: Cell) -> str:
        return self.rows[cell[0]][cell[1]]

    @property
    def size(self) -> Cell:
        """Number of rows and of columns."""
        return len(self.rows), len(self.rows[0])

    def _cells(self) -> list[Cell]:
        return [(row, column) for row, cells in enumerate(self.rows) for column in range(len(cells))]

    def after(self, cell: Cell, move: str) -> Cell:
        """Return the cell that a move leads to; a wall or the edge leaves the position unchanged."""
        row, column = cell[0] + MOVES[move][0], cell[1] + MOVES[move][1]
        inside = 0 <= row < len(self.rows) and 0 <= column < len(self.rows[0])
        return (row, column) if inside and self.rows[row][column] != "#" else cell

    def open_moves(self, cell: Cell) -> list[str]:
        """Return the moves that change the position."""
        return [move for move in MOVES if self.after(cell, move) != cell]

    @cached_property
    def distance(self) -> dict[Cell, int]:
        """Fewest moves from each cell to the goal, without the cells from which it cannot be reached."""
        known, waiting = {self.goal: 0}, deque([self.goal])
        while waiting:
            cell = waiting.popleft()
            for move in MOVES:
                if (near := self.after(cell, move)) not in known:
                    known[near] = known[cell] + 1
                    waiting.append(near)
        return known

    def best_moves(self, cell: Cell) -> list[str]:
        """Return the moves that begin a shortest way to the goal."""
        return [move for move in MOVES if self.distance[self.after(cell, move)] < self.distance[cell]]


def cell_name(cell: Cell) -> str:
    """Return the name of a cell, such as b3: the second column, the third row."""
    return f"{chr(ord('a') + cell[1])}{cell[0] + 1}"


def notes(grid: Grid, cell: Cell, worked: str) -> str:
    """Format a cell, its open moves and, after `<`, the last six moves that led there, such as `b2 dr <rd`."""
    memory = f" <{worked[-6:]}" if worked else ""
    return f"{cell_name(cell)} {''.join(grid.open_moves(cell))}{memory}"


def way_to_goal(grid: Grid, cell: Cell) -> str:
    """Format the distance to the goal in each direction, ignoring walls, such as `2r1d`; `here` on the goal itself."""
    down, right = grid.goal[0] - cell[0], grid.goal[1] - cell[1]
    steps = [(right, "r"), (-right, "l"), (down, "d"), (-down, "u")]
    return "".join(f"{count}{move}" for count, move in steps if count > 0) or "here"


def read_move(turn: str) -> str | None:
    """Return the move that the last word of a turn names; None: none."""
    words = turn.lower().split()
    return WORDS.get(words[-1].strip(".,:;!()")) if words else None


@lru_cache(maxsize=4096)
def with_walker(content: bytes, size: Cell, start: Cell, cell: Cell) -> bytes:
    """Move the walker on a picture of a grid. Equal arguments give equal bytes.

    Args:
        content: PNG or JPEG file, whose cells have equal sizes; the cell of the start has nothing but the walker.
        size: number of rows and of columns.
        start: cell of the walker in the picture.
        cell: its new cell.

    Returns:
        A PNG file; the given file if the walker is at its start.
    """
    from PIL import ImageDraw

    if cell == start:
        return content
    picture = decoded(content, "the picture of the grid")
    left, top, right, bottom = _cell_box(picture, size, start)
    ImageDraw.Draw(picture).rectangle([left, top, right - 1, bottom - 1], fill="white")
    return png_of(draw_walker(picture, size, cell))


def draw_walker(picture: Image, size: Cell, cell: Cell) -> Image:
    """Draw a black square of half a cell into a cell of a picture with `size` rows and columns. Return the picture."""
    from PIL import ImageDraw

    left, top, right, bottom = _cell_box(picture, size, cell)
    across, down = (right - left) // 4, (bottom - top) // 4
    box = [left + across, top + down, right - 1 - across, bottom - 1 - down]
    ImageDraw.Draw(picture).rectangle(box, fill="black")
    return picture


def _cell_box(picture: Image, size: Cell, cell: Cell) -> tuple[int, int, int, int]:
    """Return the left, top, right and bottom edge of a cell; the last two are those of the next cells."""
    (rows, columns), (row, column) = size, cell
    across, down = picture.width, picture.height
    return (
        across * column // columns,
        down * row // rows,
        across * (column + 1) // columns,
        down * (row + 1) // rows,
    )
