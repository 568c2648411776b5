"""Pictures that were drawn by a few lines of SVG, to be drawn again; many demonstrations are a little off.

    <image:9f86...> draw      <rect x="3" y="4" width="9" height="9" fill="red" />

A picture of 32 pixels has one to three shapes on white: squares and circles in the quarters. The level is their number.
The flaw of demonstrations is `off`: every number of one shape differs by up to two. The picture is the same for other
drawings too, so an answer is compared by what it draws (reward `rendered`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Annotated

from pydantic import Field

from models.answers.vector_graphics import rendered
from models.base.images import reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.scenes import COLOURS, split_of_picture

EDGE = 32
"""Width and height of a picture, in pixels."""
OFF = "off"
Drawn = tuple[str, str, int, int, int]
"""Form and colour of a shape; left and top edge and width of the square around it."""


class VectorDrawingsSettings(TaskSettings):
    """The section `vector_drawings` of params.yaml."""

    pictures: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of pictures, of all splits together."""
    shapes: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1, max_length=4)]
    """Weight of the pictures with one shape, with two, and so on."""
    flawed: Share
    """Share of the demonstrations in which one shape is off."""

    def draw(self, random: Random) -> Task:
        """Draw a picture."""
        reference, shapes = drawn_picture(self.seed, random.randrange(self.pictures), self.shapes)
        return Task(f"{reference} draw", written(shapes), len(shapes), ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: the lines of the picture; with a flaw, the numbers of one of them differ."""
        if random.random() >= self.flawed:
            return SOUND, (task.answer,)
        lines = task.answer.split(" /> ")
        number = random.randrange(len(lines))
        lines[number] = " ".join(_shifted(random, word) for word in lines[number].split(" "))
        return OFF, (" /> ".join(lines),)

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its picture."""
        return split_of_picture(task.prompt)


@lru_cache(maxsize=1 << 16)
def drawn_picture(seed: int, number: int, weights: tuple[float, ...]) -> tuple[str, tuple[Drawn, ...]]:
    """Return the reference to a picture and its shapes. Equal arguments give equal pictures.

    Args:
        seed: seed of the task set.
        number: number of the picture.
        weights: see `VectorDrawingsSettings.shapes`.
    """
    random = Random(f"{seed}/drawing/{number}")
    (count,) = random.choices(range(1, len(weights) + 1), weights)
    shapes: list[Drawn] = []
    for quarter in sorted(random.sample(range(4), count)):
        wide = 2 * random.randint(3, 6)
        x, y = (16 * side + random.randint(1, 15 - wide) for side in (quarter % 2, quarter // 2))
        shapes.append((random.choice(("rect", "circle")), random.choice(list(COLOURS)), x, y, wide))
    return reference_to(png_of(rendered(written(shapes), (EDGE, EDGE)))), tuple(shapes)


def written(shapes: Sequence[Drawn]) -> str:
    """Write shapes as SVG, one space between any two words."""
    lines = []
    for form, colour, x, y, wide in shapes:
        if form == "rect":
            place = f'x="{x}" y="{y}" width="{wide}" height="{wide}"'
        else:
            place = f'cx="{x + wide // 2}" cy="{y + wide // 2}" r="{wide // 2}"'
        lines.append(f'<{form} {place} fill="{colour}" />')
    return " ".join(lines)


def _shifted(random: Random, word: str) -> str:
    """Return a word with its number moved by up to two, at least 1; a word without a number unchanged."""
    name, _, value = word.partition("=")
    value = value.strip('"')
    return f'{name}="{max(1, int(value) + random.randint(-2, 2))}"' if value.isdecimal() else word


SETTINGS = VectorDrawingsSettings
