"""The drawn grids of `drawn_walks`, with a forecast of every move before it is made, and another move if it is bad.

    <image:9f86...> walk to the circle      r b1 away d a2 closer d | <image:07aa...> | d a3 closer d | ...

A turn names a move, the cell that it leads to, and whether the goal is closer then; a move that is not closer is
followed by another one. The last word is the move that is made. In a detour, the forecasts of the random moves are
wrong: they say `closer`.
"""

from __future__ import annotations

from random import Random

from models.agents.play.grid import MOVES, Cell, Grid, cell_name
from models.task_sets.drawn_walks import DrawnWalksSettings, after_move
from models.task_sets.grid_walk import Choice, walk

CLOSER, AWAY = "closer", "away"


class DrawnForecastsSettings(DrawnWalksSettings):
    """The section `drawn_forecasts` of params.yaml."""

    def _walked(self, prompt: str, grid: Grid, choose: Choice) -> tuple[str, ...]:
        random = Random(f"{self.seed}/{prompt}")
        return walk(
            grid,
            choose,
            self.longest,
            says=lambda grid, cell, move: (forecast(grid, cell, move, random),),
            hears=lambda grid, cell, worked: after_move(prompt, grid, cell),
        )


def forecast(grid: Grid, cell: Cell, move: str, random: Random) -> str:
    """Return a turn that considers moves from a cell, up to the one that is made.

    Args:
        grid: the grid.
        cell: where the walker is.
        move: the move that is made; its verdict is `closer`.
        random: draws up to two moves that are considered before, and rejected because they lead away.
    """
    best = grid.best_moves(cell)
    others = [other for other in MOVES if other not in best]
    rejected = random.sample(others, min(random.choice((0, 0, 1, 2)), len(others)))
    considered = [(other, AWAY) for other in rejected if other != move] + [(move, CLOSER)]
    words = [f"{other} {cell_name(grid.after(cell, other))} {verdict}" for other, verdict in considered]
    return " ".join([*words, move])


SETTINGS = DrawnForecastsSettings
