"""The grids of `grid_walk` with hidden walls: the notes of the environment list the possible moves.

A...
..G.
a1 dr      d | a2 ur <d | r | b2 lr <dr | r
"""

from __future__ import annotations

from models.agents.play.grid import Grid, notes
from models.task_sets.grid_walk import Choice, GridWalkSettings, walk


class GridNotesSettings(GridWalkSettings):
    """The section `grid_notes` of params.yaml."""

    def _shown(self, grid: Grid) -> str:
        return f"{super()._shown(grid).replace('#', '.')}\n{notes(grid, grid.start, '')}"

    def _walked(self, grid: Grid, choose: Choice) -> tuple[str, ...]:
        return walk(grid, choose, self.longest, hears=notes)


SETTINGS = GridNotesSettings
