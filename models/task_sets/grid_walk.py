"""Grids with walls, a start and a goal; many demonstrations wander.

    A.#.
    ..#.    d | a2 | d | a3 | r | b3 | r | c3 | r
    ...G

The flaw of demonstrations: `wandered`, in which every move is by chance, as far as walls let it, until the goal or the
longest walk. A problem's level is the length of its shortest way.
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
"""The move that somebody makes from a cell."""


class GridWalkSettings(TaskSettings):
    """The section `grid_walk` of params.yaml."""

    states_answer: ClassVar[bool] = False
    rows: Side
    columns: Side
    walls: Count
    """Cells that are walls."""
    way: tuple[int, int]
    """Shortest and longest way from start to goal, in moves."""
    longest: Annotated[int, Field(ge=1)]
    """Moves of a demonstration."""
    wandered: Share
    """Share of the demonstrations that go by chance."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.walls > self.rows * self.columns - 2:
            raise ValueError(f"walls: {self.walls} leave no room for start and goal")
        if not 0 < self.way[0] <= self.way[1]:
            raise ValueError(f"way: {self.way[0]} to {self.way[1]} is no range of numbers above zero")
        return self

    def draw(self, random: Random) -> Task:
        """A grid whose goal can be reached."""
        grid = self._grid(random)
        answer = json.dumps({"grid": grid.rows})
        return Task(self._shown(grid), answer, grid.distance[grid.start], self._walked(grid, straight))

    def _walked(self, grid: Grid, choose: Choice) -> tuple[str, ...]:
        """The turns of a walk."""
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
        """A walk by chance, or the shortest."""
        if random.random() >= self.wandered:
            return SOUND, task.steps
        grid = Grid(json.loads(task.answer)["grid"])
        return "wandered", self._walked(grid, by_chance(random))


def straight(grid: Grid, cell: Cell) -> str:
    """The first of the moves that begin a shortest way."""
    return grid.best_moves(cell)[0]


def by_chance(random: Random) -> Choice:
    """Any move that leads somewhere."""
    return lambda grid, cell: random.choice(grid.open_moves(cell))


def walk(
    grid: Grid,
    choose: Choice,
    longest: int,
    says: Callable[[Grid, Cell, str], tuple[str, ...]] = lambda grid, cell, move: (move,),
    hears: Callable[[Grid, Cell, str], str] = lambda grid, cell, worked: cell_name(cell),
) -> tuple[str, ...]:
    """Turns of a walk, the last the walker's.

    Args:
        grid: where.
        choose: makes the moves.
        longest: most of them.
        says: the turns that a move from a cell is made in, with what is heard between them.
        hears: what the environment answers to one that led to a cell, by the moves that have led there.
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
