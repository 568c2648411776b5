"""Pictures from a subset of SVG, drawn without antialiasing: rect, circle, ellipse, line, polygon and polyline.

    <rect x="3" y="4" width="9" height="9" fill="red" /> <circle cx="24" cy="8" r="5" fill="#3246dc" />

The elements may be in one `<svg>` with a `viewBox`, which is scaled to the picture. Other elements and attributes are
ignored. Declarations of documents and entities are refused, because they can grow without limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_CHARACTERS = 20_000
"""Maximum length of a drawing."""
MOST_ELEMENTS = 500
"""Maximum number of elements of a drawing."""
LARGEST = 1e4
"""Largest coordinate."""
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2})?")


class UnreadableDrawingError(ValueError):
    """A text that is not a drawing of the subset."""


def rendered(text: str, size: tuple[int, int]) -> Image:
    """Draw a text on white.

    Args:
        text: the drawing.
        size: width and height of the picture, in pixels.

    Raises:
        UnreadableDrawingError: the text cannot be read, draws nothing, or is too large.
    """
    from PIL import Image, ImageDraw

    root = _parsed(text)
    scale = _scale(root, size)
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    drawn = 0
    for number, element in enumerate(root.iter()):
        if number > MOST_ELEMENTS:
            raise UnreadableDrawingError(f"more than {MOST_ELEMENTS} elements")
        drawn += _draw(draw, element, scale)
    if not drawn:
        raise UnreadableDrawingError("nothing is drawn")
    return picture


def _parsed(text: str) -> ElementTree.Element:
    if len(text) > MOST_CHARACTERS:
        raise UnreadableDrawingError(f"more than {MOST_CHARACTERS:,} characters")
    if "<!" in text or "<?" in text:
        raise UnreadableDrawingError("declarations are not read")
    try:
        return ElementTree.fromstring(f"<drawing>{text}</drawing>")
    except ElementTree.ParseError as error:
        raise UnreadableDrawingError(f"no XML: {error}") from None


def _scale(root: ElementTree.Element, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the left and top edge of the view, and the pixels of a unit across and down."""
    view = next((_numbers(element.get("viewBox")) for element in root if _kind(element) == "svg"), [])
    if len(view) != 4 or view[2] <= 0 or view[3] <= 0:
        return 0.0, 0.0, 1.0, 1.0
    return view[0], view[1], size[0] / view[2], size[1] / view[3]


def _draw(draw: Any, element: ElementTree.Element, scale: tuple[float, float, float, float]) -> bool:
    """Draw an element of the subset. Return whether it drew anything."""
    left, top, across, down = scale

    def value(name: str, default: float = 0.0) -> float:
        return next(iter(_numbers(element.get(name))), default)

    def at(x: float, y: float) -> tuple[float, float]:
        return (x - left) * across, (y - top) * down

    def pairs(numbers: Sequence[float]) -> list[tuple[float, float]]:
        return [at(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=False)]

    kind = _kind(element)
    if kind in ("line", "polyline"):
        ink = _colour(element.get("stroke"), None)
        numbers = _numbers(element.get("points")) if kind == "polyline" else [*map(value, ("x1", "y1", "x2", "y2"))]
        points = pairs(numbers)
        if ink is None or len(points) < 2:
            return False
        draw.line(points, fill=ink, width=max(1, round(value("stroke-width", 1.0) * across)))
        return True
    fill, edge = _colour(element.get("fill"), (0, 0, 0)), _colour(element.get("stroke"), None)
    if fill is None and edge is None:
        return False
    if kind == "polygon":
        points = pairs(_numbers(element.get("points")))
        if len(points) < 3:
            return False
        draw.polygon(points, fill=fill, outline=edge)
        return True
    if kind == "rect":
        x, y, wide, high = (value(name) for name in ("x", "y", "width", "height"))
    elif kind in ("circle", "ellipse"):
        half_wide, half_high = (value("r"), value("r")) if kind == "circle" else (value("rx"), value("ry"))
        x, y, wide, high = value("cx") - half_wide, value("cy") - half_high, 2 * half_wide, 2 * half_high
    else:
        return False
    if wide <= 0 or high <= 0:
        return False
    box = [*at(x, y), *at(x + wide, y + high)]
    (draw.rectangle if kind == "rect" else draw.ellipse)(box, fill=fill, outline=edge)
    return True


def _kind(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _numbers(text: str | None) -> list[float]:
    """Return the numbers of an attribute, each at most `LARGEST`."""
    numbers = [float(number) for number in _NUMBER.findall(text or "")]
    if any(not math.isfinite(number) or abs(number) > LARGEST for number in numbers):
        raise UnreadableDrawingError(f"a coordinate above {LARGEST:,.0f}")
    return numbers


def _colour(text: str | None, default: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
    """Return a colour; None for none, `default` for an attribute that is missing or unknown."""
    from PIL import ImageColor

    if text is None:
        return default
    if text.strip() == "none":
        return None
    try:
        return ImageColor.getrgb(text.strip())[:3]  # type: ignore[return-value]
    except ValueError:
        return default
