"""Small pictures for pages and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.images import images_in, known_content
from models.base.pictures import decoded

if TYPE_CHECKING:
    from PIL.Image import Image

EDGE = 96
"""Longest edge of a thumbnail, in pixels."""


def thumbnail(name: str) -> Image | None:
    """Return an image with EDGE as its longest edge; None if it is not known here or cannot be decoded."""
    from PIL import Image

    content = known_content(name)
    if content is None:
        return None
    try:
        picture = decoded(content, f"image {name}")
    except UserError:
        return None
    scale = EDGE / max(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)


def first_image(row: Mapping[str, Any]) -> str | None:
    """Return the first image that a text of a row refers to and that is known here; None if there is none."""
    names = (name for value in row.values() if isinstance(value, str) for name in images_in(value))
    return next((name for name in names if known_content(name) is not None), None)
