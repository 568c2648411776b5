"""Grids with walls, a start and a goal; many demonstrations wander.

    A.#.
    ..#.    d | a2 | d | a3 | r | b3 | r | c3 | r
    ...G

The flaw of demonstrations: `wandered`, random moves that no wall blocks, until the goal or the longest walk is
reached. A problem's level is the length of its shortest way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.agents.play.grid import Cell, Grid, cell_name
from models.datasets.schema import SOUND
from models.task_sets.drawing import Count, Share, Task, TaskSettings

Side = Annotated[int, Field(ge=2, le=9)]
Choice = Callable[[Grid, Cell], str]
"""Function that chooses the move from a cell."""


class GridWalkSettings(TaskSettings):
    """The section `grid_walk` of params.yaml."""

    states_answer: ClassVar[bool] = False
    rows: Side
    columns: Side
    walls: Count
    """Number of cells that are walls."""
    way: tuple[int, int]
    """Smallest and largest distance from start to goal, in moves."""
    longest: Annotated[int, Field(ge=1)]
    """Maximum number of moves of a demonstration."""
    wandered: Share
    """Share of the demonstrations with random moves."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.walls > self.rows * self.columns - 2:
            raise ValueError(f"walls: {self.walls} leave no room for start and goal")
        if not 0 < self.way[0] <= self.way[1]:
            raise ValueError(f"way: {self.way[0]} to {self.way[1]} is not a range of numbers above zero")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a grid whose goal can be reached."""
        grid = self._grid(random)
        answer = json.dumps({"grid": grid.rows})
        return Task(self._shown(grid), answer, grid.distance[grid.start], self._walked(grid, straight))

    def _walked(self, grid: Grid, choose: Choice) -> tuple[str, ...]:
        """Return the turns of a walk."""
        return walk(grid, choose, self.longest)

    def _grid(self, random: Random) -> Grid:
        while True:
            cells = ["A", "G", *"#" * self.walls, *"." * (self.rows * self.columns - 2 - self.walls)]
            random.shuffle(cells)
            text = "".join(cells)
            grid = Grid([text[at : at + self.columns] for at in range(0, len(text), self.columns)])
            if self.way[0] <= grid.distance.get(grid.start, 0) <= self.way[1]:
                return grid

    def _shown(self, grid: Grid) -> str:
        return "\n".join(grid.rows)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a random walk, or a shortest one."""
        if random.random() >= self.wandered:
            return SOUND, task.steps
        grid = Grid(json.loads(task.answer)["grid"])
        return "wandered", self._walked(grid, by_chance(random))


def straight(grid: Grid, cell: Cell) -> str:
    """Return the first of the moves that begin a shortest way."""
    return grid.best_moves(cell)[0]


def by_chance(random: Random) -> Choice:
    """Return a function that chooses a random move among those that change the position."""
    return lambda grid, cell: random.choice(grid.open_moves(cell))


def walk(
    grid: Grid,
    choose: Choice,
    longest: int,
    says: Callable[[Grid, Cell, str], tuple[str, ...]] = lambda grid, cell, move: (move,),
    hears: Callable[[Grid, Cell, str], str] = lambda grid, cell, worked: cell_name(cell),
) -> tuple[str, ...]:
    """Return the turns of a walk, the last of which is the walker's.

    Args:
        grid: the grid.
        choose: chooses the moves.
        longest: maximum number of moves.
        says: returns the turns of a move from a cell, including the environment's turns between them.
        hears: returns the environment's reply to a move, given the new cell and the moves that led there.
    """
    turns: list[str] = []
    cell, worked = grid.start, ""
    for _ in range(longest):
        move = choose(grid, cell)
        turns += says(grid, cell, move)
        after = grid.after(cell, move)
        worked += move if after != cell else ""
        cell = after
        if cell == grid.goal:
            return tuple(turns)
        turns.append(hears(grid, cell, worked))
    return tuple(turns[:-1])


SETTINGS = GridWalkSettings
