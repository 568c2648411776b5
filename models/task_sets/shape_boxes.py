"""Questions about where shapes are in a picture; the answer is the box around each of them, in pixels.

    <image:9f86...> box of the red          3 4 12 13
    <image:9f86...> boxes of red            3 4 12 13 ; 18 2 27 11

A box is the left, top, right and bottom edge; boxes come from the top left to the bottom right, quarter by quarter. The
pictures are those of `models.task_sets.scenes`, and belong to the same splits there. The level is the number of boxes.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Task
from models.task_sets.scenes import PictureSettings, PixelBox, Shape, Square, box_of, picture


class ShapeBoxesSettings(PictureSettings):
    """The section `shape_boxes` of params.yaml."""

    several: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of the questions with two or more boxes."""

    def draw(self, random: Random) -> Task:
        """Draw a question: first whether it is about several shapes, then a picture, then a property."""
        several = random.random() < self.several
        while True:
            shapes, squares, reference = picture(self.seed, random.randrange(self.pictures), self.pixels)
            every = boxes_of(shapes, squares, self.pixels)
            fitting = {word: boxes for word, boxes in every.items() if (len(boxes) > 1) == several}
            if fitting:
                word = random.choice(sorted(fitting))
                question = f"boxes of {word}" if several else f"box of the {word}"
                return Task(f"{reference} {question}", answer_of(fitting[word]), len(fitting[word]), ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the answer, without a flaw."""
        return SOUND, (task.answer,)


def boxes_of(shapes: tuple[Shape, ...], squares: tuple[Square, ...], pixels: int = 32) -> dict[str, list[PixelBox]]:
    """Return the boxes of all shapes with each colour and each form of a picture, in the order of their quarters."""
    boxes: dict[str, list[PixelBox]] = {}
    for (colour, form, _), square in sorted(zip(shapes, squares, strict=True), key=lambda each: each[0][2]):
        for word in (colour, form):
            boxes.setdefault(word, []).append(box_of(square, pixels))
    return boxes


def answer_of(boxes: list[PixelBox]) -> str:
    """Write boxes as an answer."""
    return " ; ".join(" ".join(map(str, box)) for box in boxes)


SETTINGS = ShapeBoxesSettings
