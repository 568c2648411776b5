"""Views of solids, and programs of boxes that make them; many demonstrations have a dimension that is off.

    <image:9f86...> model      box 0 0 0 6 4 2 ; box 1 1 2 2 2 4

The solid and its language are those of `models.answers.solids`. The picture shows it from the front (top left), from
above (top right) and from the right (bottom left): the nearer, the darker. The level is the number of operations. With
the flaw `off`, one number of a demonstration differs by one.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from models.answers.solids import BOX, CUT, EDGE, Cells, UnreadableSolidError, solid, views
from models.base.images import reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.scenes import split_of_picture

if TYPE_CHECKING:
    from PIL.Image import Image

BETWEEN = " ; "
OFF = "off"
SMALLEST = 2
"""Smallest size of a box, in cells."""


class SolidsSettings(TaskSettings):
    """The section `solids` of params.yaml."""

    solids: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of solids, of all splits together."""
    operations: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1, max_length=3)]
    """Weight of the solids of one operation, of two, and so on."""
    flawed: Share
    """Share of the demonstrations in which a number is off."""

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its picture."""
        return split_of_picture(task.prompt)

    def draw(self, random: Random) -> Task:
        """Draw a solid."""
        program, reference = drawn_solid(self.seed, random.randrange(self.solids), self.operations)
        return Task(f"{reference} model", program, program.count(BETWEEN) + 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the program; with a flaw, one of its numbers differs by one and makes another solid."""
        if random.random() >= self.flawed:
            return SOUND, (task.answer,)
        while True:
            words = task.answer.split()
            place = random.choice([at for at, word in enumerate(words) if word.isdecimal()])
            words[place] = str(int(words[place]) + random.choice((-1, 1)))
            try:
                if (solid(" ".join(words)) != solid(task.answer)).any():
                    return OFF, (" ".join(words),)
            except UnreadableSolidError:
                continue


@lru_cache(maxsize=1 << 16)
def drawn_solid(seed: int, number: int, weights: tuple[float, ...]) -> tuple[str, str]:
    """Return the program of a solid and the reference to its picture. Equal arguments give equal solids.

    Args:
        seed: seed of the task set.
        number: number of the solid.
        weights: see `SolidsSettings.operations`.
    """
    random = Random(f"{seed}/solid/{number}")
    (count,) = random.choices(range(1, len(weights) + 1), weights)
    while True:
        lines = [_line(random, BOX if not at else random.choice((BOX, CUT))) for at in range(count)]
        program = BETWEEN.join(lines)
        if _every_line_counts(lines):
            return program, reference_to(png_of(picture_of(solid(program))))


def _line(random: Random, operation: str) -> str:
    sizes = [random.randint(SMALLEST, EDGE - 1) for _ in range(3)]
    corner = [random.randint(0, EDGE - size) for size in sizes]
    return " ".join([operation, *map(str, (*corner, *sizes))])


def _every_line_counts(lines: list[str]) -> bool:
    """Return whether each operation changes what can be seen."""
    try:
        seen = [views(solid(BETWEEN.join(lines[:count]))) for count in range(1, len(lines) + 1)]
    except UnreadableSolidError:
        return False
    return all((before != after).any() for before, after in pairwise(seen))


def picture_of(cells: Cells) -> Image:
    """Draw the three views of a solid, two pixels a cell: the nearer, the darker."""
    from PIL import Image

    grey = np.full((4 * EDGE, 4 * EDGE), 255, np.uint8)
    for view, (row, column) in zip(views(cells), ((0, 0), (0, 1), (1, 0)), strict=True):
        shade = np.where(view == 1.0, 255, np.round(210 * view)).astype(np.uint8).repeat(2, 0).repeat(2, 1)
        grey[2 * EDGE * row : 2 * EDGE * (row + 1), 2 * EDGE * column : 2 * EDGE * (column + 1)] = shade
    return Image.fromarray(grey).convert("RGB")


SETTINGS = SolidsSettings
