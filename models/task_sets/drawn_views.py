"""The drawn grids of `drawn_walks`, in which every possible place is shown before a move, and the best one is chosen.

    <image:9f86...> walk to the circle | d <image:07aa...> r <image:5d1e...> | r | d <image:1b3c...> l ... | d

The environment `grid_walk` with `shows: views` speaks first.
"""

from __future__ import annotations

from models.agents.play.grid import Cell, Grid
from models.task_sets.drawn_walks import DrawnWalksSettings, after_move
from models.task_sets.grid_walk import Choice, walk


class DrawnViewsSettings(DrawnWalksSettings):
    """The section `drawn_views` of params.yaml."""

    def _walked(self, prompt: str, grid: Grid, choose: Choice) -> tuple[str, ...]:
        def views(grid: Grid, cell: Cell) -> str:
            return " ".join(
                f"{move} {after_move(prompt, grid, grid.after(cell, move))}" for move in grid.open_moves(cell)
            )

        walked = walk(grid, choose, self.longest, hears=lambda grid, cell, worked: views(grid, cell))
        return "", views(grid, grid.start), *walked


SETTINGS = DrawnViewsSettings
