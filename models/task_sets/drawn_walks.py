"""Drawn grids with a walker, walls and shapes, one of which is the goal; many demonstrations make a detour.

    <image:9f86...> walk to the circle      r | <image:07aa...> | r | <image:5d1e...> | d

The picture has cells of a quarter of its width: grey ones are walls, the black square is the walker. The goal is named
by a colour or a form that no other shape has; the walker may cross the other shapes. The environment `grid_walk` with
`shows: picture` answers with a picture of the walker's new place. A problem's level is the length of its shortest way.

Demonstrations draw each move evenly among those that begin a shortest way, so that they show all of these ways. The
flaw: `detour`, in which the first moves are random.
"""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from models.agents.play.grid import Cell, Grid, draw_walker, with_walker
from models.base.images import content_of, drawn_reference, images_in, reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Count, Share, Task, TaskSettings
from models.task_sets.grid_walk import Choice, by_chance, walk
from models.task_sets.scenes import COLOURS, SHAPES, Shape, Square, painted, split_of_picture
from models.task_sets.screens import names_of

if TYPE_CHECKING:
    from PIL.Image import Image

DETOUR = "detour"
CELLS = 4
"""Number of cells in a row and in a column."""
WALL = (120, 120, 120)


class DrawnWalksSettings(TaskSettings):
    """The section `drawn_walks` of params.yaml."""

    states_answer: ClassVar[bool] = False
    pixels: Annotated[int, Field(ge=32, le=1024, multiple_of=32)] = 32
    """Width and height of a picture."""
    walls: Annotated[int, Field(ge=0, le=6)]
    """Number of cells that are walls."""
    shapes: Annotated[int, Field(ge=1, le=4)]
    """Number of shapes."""
    way: tuple[Annotated[int, Field(ge=1)], int]
    """Smallest and largest distance from start to goal, in moves."""
    detour: Share
    """Share of the demonstrations that begin with random moves."""
    astray: Count = 2
    """Largest number of these moves."""
    longest: Annotated[int, Field(ge=1)] = 12
    """Maximum number of moves of a demonstration."""

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its picture."""
        return split_of_picture(task.prompt)

    def draw(self, random: Random) -> Task:
        """Draw a map whose goal can be reached and named."""
        while True:
            cells = random.sample([(row, column) for row in range(CELLS) for column in range(CELLS)], self._occupied)
            start, walls, places = cells[0], set(cells[1 : 1 + self.walls]), cells[1 + self.walls :]
            looks = random.sample([(colour, form) for colour in COLOURS for form in SHAPES], self.shapes)
            picture = drawn_map(start, walls, list(zip(looks, places, strict=True)), self.pixels)
            reference = reference_to(png_of(picture))
            named = self._named(names_of(tuple((colour, form, 0) for colour, form in looks)), reference)
            if not named:
                continue
            number = random.choice(sorted(named))
            grid = _grid(start, places[number], walls)
            if self.way[0] <= grid.distance.get(start, 0) <= self.way[1]:
                break
        prompt = self._prompt(random, reference, named[number], places[number])
        answer = json.dumps({"grid": grid.rows})
        return Task(prompt, answer, grid.distance[start], self._walked(prompt, grid, _evenly(random)))

    @property
    def _occupied(self) -> int:
        return 1 + self.walls + self.shapes

    def _named(self, named: dict[int, list[str]], reference: str) -> dict[int, list[str]]:
        """Return the shapes that may be the goal, each with its names."""
        return named

    def _prompt(self, random: Random, reference: str, names: list[str], goal: Cell) -> str:
        """Return the prompt, which names the goal."""
        return f"{reference} walk to the {random.choice(names)}"

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a shortest way, after random moves if it has the flaw."""
        grid, evenly, moved = Grid(json.loads(task.answer)["grid"]), _evenly(random), 0
        if random.random() >= self.detour:
            return SOUND, self._walked(task.prompt, grid, evenly)
        strays, by_the_way = random.randint(1, self.astray), by_chance(random)

        def choose(grid: Grid, cell: Cell) -> str:
            nonlocal moved
            moved += 1
            return (by_the_way if moved <= strays else evenly)(grid, cell)

        return DETOUR, self._walked(task.prompt, grid, choose)

    def _walked(self, prompt: str, grid: Grid, choose: Choice) -> tuple[str, ...]:
        """Return the turns of a walk."""
        return walk(grid, choose, self.longest, hears=lambda grid, cell, worked: after_move(prompt, grid, cell))


def after_move(prompt: str, grid: Grid, cell: Cell) -> str:
    """Return the reference to the prompt's picture, with the walker in a cell."""
    return drawn_reference(with_walker(content_of(images_in(prompt)[0]), grid.size, grid.start, cell))


def _evenly(random: Random) -> Choice:
    """Return a function that draws evenly among the moves that begin a shortest way."""
    return lambda grid, cell: random.choice(grid.best_moves(cell))


def _grid(start: Cell, goal: Cell, walls: set[Cell]) -> Grid:
    marks = {**dict.fromkeys(walls, "#"), start: "A", goal: "G"}
    return Grid(["".join(marks.get((row, column), ".") for column in range(CELLS)) for row in range(CELLS)])


def drawn_map(start: Cell, walls: set[Cell], shapes: list[tuple[tuple[str, str], Cell]], pixels: int) -> Image:
    """Draw a map.

    Args:
        start: cell of the walker.
        walls: cells that are walls.
        shapes: colour and form of each shape, and its cell.
        pixels: width and height of the picture.
    """
    from PIL import ImageDraw

    looks: list[Shape] = [(colour, form, 0) for (colour, form), _ in shapes]
    wide = 32 // CELLS
    squares: list[Square] = [(wide * column + 1, wide * row + 1, wide - 2) for _, (row, column) in shapes]
    picture = painted(tuple(looks), tuple(squares), pixels)
    draw, edge = ImageDraw.Draw(picture), pixels // CELLS
    for row, column in walls:
        draw.rectangle([edge * column, edge * row, edge * (column + 1) - 1, edge * (row + 1) - 1], fill=WALL)
    return draw_walker(picture, (CELLS, CELLS), start)


SETTINGS = DrawnWalksSettings
