"""A tool that looks: a part of the prompt's picture, which the policy reads as a picture of its own.

    zoom: topright           <image:07aa...>        a quarter
    zoom: 40 4 60 24         <image:5d1e...>        left, top, right and bottom edge in pixels, edges included

A policy reads every picture with the same number of image tokens, so a part of a large picture is seen more sharply
than the whole. The answer is part of the environment's text, which carries no loss (OpenThinkIMG, paper 189).
"""

from __future__ import annotations

import copy
from functools import lru_cache

from models.base.bounds import Positive
from models.base.images import content_of, drawn_reference, images_in
from models.base.pictures import decoded, png_of
from models.method.problem import Problem
from models.method.registry import part
from models.method.tool import Tool, ToolError

QUARTERS = {"topleft": (0, 0), "topright": (1, 0), "bottomleft": (0, 1), "bottomright": (1, 1)}
"""Column and row of each quarter."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom edge, in pixels, edges included."""


@part("zoom")
class Zoom(Tool):
    """A part of the first picture of the prompt."""

    usage = "topleft, topright, bottomleft or bottomright; or left, top, right and bottom edge in pixels"
    smallest: Positive = 4
    """Smallest width and height of a part, in pixels."""

    def __post_init__(self) -> None:
        self._look_at(None)

    def about(self, problem: Problem) -> Zoom:
        """Return the tool for the picture of a problem's prompt."""
        names = images_in(problem.prompt)
        tool = copy.copy(self)
        tool._look_at(content_of(names[0]) if names else None)
        return tool

    def _look_at(self, content: bytes | None) -> None:
        object.__setattr__(self, "_content", content)

    def call(self, argument: str) -> str:
        """Return a reference to the part of the picture."""
        content: bytes | None = vars(self)["_content"]
        if content is None:
            raise ToolError("the prompt has no picture")
        picture = decoded(content, "the picture of the prompt")
        box = _box(argument, picture.width, picture.height)
        if box is None:
            raise ToolError(self.usage)
        left, top, right, bottom = box
        if right >= picture.width or bottom >= picture.height:
            raise ToolError(f"the picture is {picture.width} pixels wide and {picture.height} high")
        if min(right - left, bottom - top) < self.smallest - 1:
            raise ToolError(f"a part is at least {self.smallest} pixels wide and high")
        return drawn_reference(cut_out(content, box))


@lru_cache(maxsize=4096)
def cut_out(content: bytes, box: Box) -> bytes:
    """Return a part of a picture as a PNG file. Equal arguments give equal bytes.

    Args:
        content: PNG or JPEG file.
        box: the part, inside the picture.
    """
    left, top, right, bottom = box
    return png_of(decoded(content, "the picture").crop((left, top, right + 1, bottom + 1)))


def quarter(name: str, width: int, height: int) -> Box:
    """Return the box of a quarter of a picture with `width` x `height` pixels."""
    column, row = QUARTERS[name]
    across, down = width // 2, height // 2
    right, bottom = (width if column else across) - 1, (height if row else down) - 1
    return column * across, row * down, right, bottom


def _box(argument: str, width: int, height: int) -> Box | None:
    """Read the argument of a call; None: it names no part."""
    words = argument.split()
    if len(words) == 1 and words[0] in QUARTERS:
        return quarter(words[0], width, height)
    if len(words) != 4 or not all(word.isdecimal() and word.isascii() and len(word) <= 5 for word in words):
        return None
    left, top, right, bottom = map(int, words)
    return left, top, right, bottom
