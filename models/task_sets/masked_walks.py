"""The drawn grids of `drawn_walks`, in which a second picture shows where the goal is; no word names it.

    <image:9f86...> walk to <image:77b2...>      r | <image:07aa...> | r | <image:5d1e...> | d

The second picture is a mask: white, and black in the cell of the goal.
"""

from __future__ import annotations

from random import Random

from models.agents.play.grid import Cell
from models.base.images import reference_to
from models.base.pictures import png_of
from models.task_sets.drawn_walks import CELLS, DrawnWalksSettings


class MaskedWalksSettings(DrawnWalksSettings):
    """The section `masked_walks` of params.yaml."""

    def _prompt(self, random: Random, reference: str, names: list[str], goal: Cell) -> str:
        return f"{reference} walk to {mask_of(goal, self.pixels)}"


def mask_of(cell: Cell, pixels: int) -> str:
    """Return the reference to a white picture in which one cell is black."""
    from PIL import Image

    mask, edge = Image.new("RGB", (pixels, pixels), "white"), pixels // CELLS
    mask.paste((0, 0, 0), (edge * cell[1], edge * cell[0], edge * (cell[1] + 1), edge * (cell[0] + 1)))
    return reference_to(png_of(mask))


SETTINGS = MaskedWalksSettings
