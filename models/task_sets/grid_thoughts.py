"""The grids of `grid_walk` with a turn of thought before every move: the way to the goal, ignoring walls.

    A.#.
    ..G.
    think      2r1d | act | d | a2 think | 2r | act | r | b2 think | 1r | act | r

The thoughts of a random walk are as true as those of a shortest one; only its moves do not follow from them.
"""

from __future__ import annotations

from models.agents.play.functions import ACT
from models.agents.play.grid import Grid, cell_name, way_to_goal
from models.task_sets.grid_walk import Choice, GridWalkSettings, walk

THINK = "think"


class GridThoughtsSettings(GridWalkSettings):
    """The section `grid_thoughts` of params.yaml."""

    def _shown(self, grid: Grid) -> str:
        return f"{super()._shown(grid)}\n{THINK}"

    def _walked(self, grid: Grid, choose: Choice) -> tuple[str, ...]:
        return walk(
            grid,
            choose,
            self.longest,
            says=lambda grid, cell, move: (way_to_goal(grid, cell), ACT, move),
            hears=lambda grid, cell, worked: f"{cell_name(cell)} {THINK}",
        )


SETTINGS = GridThoughtsSettings
