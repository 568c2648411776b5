"""A screen with things to press, as pure rules: where the cursor is, what was pressed, and how the screen looks then.

The screen is a picture; its widgets are given by the boxes around them. A widget that was pressed has a white square
with a black edge in its middle, and the cursor is a black cross of five pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from models.base.images import drawn_reference
from models.base.pictures import decoded, png_of

Point = tuple[int, int]
"""Place from the left and from the top, in pixels."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom edge of a widget, all inside it, in pixels."""
PRESS = "press"
"""The turn that presses at the place of the cursor."""
ARM = 2
"""Length of an arm of the cursor, in pixels."""
EMPTY, INK = (255, 255, 255), (0, 0, 0)


class Screen:
    """A screen in an episode."""

    def __init__(self, content: bytes, targets: Sequence[Box], in_order: bool) -> None:
        """Begin with nothing pressed.

        Args:
            content: PNG or JPEG file of the screen.
            targets: boxes of the widgets to press.
            in_order: whether they have to be pressed in this order.
        """
        self._content, self._targets, self._in_order = content, tuple(targets), in_order
        self.cursor: Point | None = None
        """Place of the cursor; None: it is not drawn."""
        self.pressed: tuple[int, ...] = ()
        """Indices of the targets that were pressed, in the order of pressing."""

    @property
    def done(self) -> bool:
        """Whether all targets were pressed."""
        return len(self.pressed) == len(self._targets)

    @property
    def state(self) -> str:
        """The state as text: what was pressed, and the place of the cursor."""
        where = "" if self.cursor is None else f" at {self.cursor[0]} {self.cursor[1]}"
        return f"pressed {''.join(map(str, sorted(self.pressed)))}{where}"

    def press(self, point: Point) -> bool:
        """Press at a place. Return whether this pressed a target that was due; else nothing changes."""
        for number in self._due():
            if inside(point, self._targets[number]):
                self.pressed += (number,)
                return True
        return False

    def distance(self, point: Point) -> float:
        """Return the distance from a place to the nearest target that is due, in pixels; zero inside it."""
        return min((_distance(point, self._targets[number]) for number in self._due()), default=0.0)

    def _due(self) -> list[int]:
        """Return the indices of the targets that may be pressed next."""
        waiting = [number for number in range(len(self._targets)) if number not in self.pressed]
        return waiting[:1] if self._in_order else waiting

    def reference(self) -> str:
        """Return the reference to a picture of the screen as it is now."""
        boxes = tuple(sorted(self._targets[number] for number in self.pressed))
        return drawn_reference(painted(self._content, boxes, self.cursor))


def inside(point: Point, box: Box) -> bool:
    """Return whether a place is inside a box, edges included."""
    return box[0] <= point[0] <= box[2] and box[1] <= point[1] <= box[3]


def middle(box: Box) -> Point:
    """Return the middle of a box, rounded down."""
    return (box[0] + box[2]) // 2, (box[1] + box[3]) // 2


@lru_cache(maxsize=4096)
def painted(content: bytes, pressed: tuple[Box, ...], cursor: Point | None) -> bytes:
    """Draw marks and the cursor on a screen. Equal arguments give equal bytes.

    Args:
        content: PNG or JPEG file of the screen.
        pressed: boxes of the widgets that were pressed.
        cursor: place of the cursor; None: not drawn.

    Returns:
        A PNG file; the given file if there is nothing to draw.
    """
    from PIL import ImageDraw

    if not pressed and cursor is None:
        return content
    picture = decoded(content, "the screen")
    draw = ImageDraw.Draw(picture)
    for x, y in map(middle, pressed):
        draw.rectangle([x - 2, y - 2, x + 2, y + 2], fill=EMPTY, outline=INK)
    if cursor is not None:
        x, y = cursor
        draw.line([(x - ARM, y), (x + ARM, y)], fill=INK)
        draw.line([(x, y - ARM), (x, y + ARM)], fill=INK)
    return png_of(picture)


def read_point(turn: str) -> Point | None:
    """Return the place that the last two words of a turn name, such as `12 9`; None: none."""
    words = turn.split()[-2:]
    if len(words) < 2 or not all(word.isdecimal() and word.isascii() and len(word) <= 5 for word in words):
        return None
    return int(words[0]), int(words[1])


def _distance(point: Point, box: Box) -> float:
    across = max(box[0] - point[0], 0, point[0] - box[2])
    down = max(box[1] - point[1], 0, point[1] - box[3])
    return math.hypot(across, down)
