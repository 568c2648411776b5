"""The drawn grids of `drawn_walks` with a turn of thought before every move: the way to the goal, ignoring walls.

    <image:9f86...> walk to the circle think      2r1d | act | r | <image:07aa...> think | 1r1d | act | d | ...

The thoughts of a detour are as true as those of a shortest way; only its moves do not follow from them.
"""

from __future__ import annotations

from random import Random

from models.agents.play.functions import ACT
from models.agents.play.grid import Cell, Grid, way_to_goal
from models.task_sets.drawn_walks import DrawnWalksSettings, after_move
from models.task_sets.grid_thoughts import THINK
from models.task_sets.grid_walk import Choice, walk


class DrawnThoughtsSettings(DrawnWalksSettings):
    """The section `drawn_thoughts` of params.yaml."""

    def _prompt(self, random: Random, reference: str, names: list[str], goal: Cell) -> str:
        return f"{super()._prompt(random, reference, names, goal)} {THINK}"

    def _walked(self, prompt: str, grid: Grid, choose: Choice) -> tuple[str, ...]:
        return walk(
            grid,
            choose,
            self.longest,
            says=lambda grid, cell, move: (way_to_goal(grid, cell), ACT, move),
            hears=lambda grid, cell, worked: f"{after_move(prompt, grid, cell)} {THINK}",
        )


SETTINGS = DrawnThoughtsSettings
