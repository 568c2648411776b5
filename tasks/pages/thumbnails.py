"""Thumbnails in HTML pages, instead of the references to images in texts."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import lru_cache
from io import BytesIO

from models.base.images import REFERENCE
from models.base.thumbnails import thumbnail
from tasks.pages.html_page import escaped

MOST = 24
"""Maximum number of images in a sample of a data set."""


def with_thumbnails(text: str) -> str:
    """Escape text for HTML; a reference to an image that is known here becomes the image."""
    pieces = REFERENCE.split(text)  # text, name, text, ...
    return "".join(
        (_tag(piece) or escaped(f"<image:{piece}>")) if number % 2 else escaped(piece)
        for number, piece in enumerate(pieces)
    )


def sample_of_images(names: Iterable[str]) -> str:
    """Render the first MOST images by name; empty if there are none."""
    chosen = sorted(set(names))
    if not chosen:
        return ""
    tags = " ".join(filter(None, map(_tag, chosen[:MOST])))
    return f"<h2>images</h2><p class='why'>{min(MOST, len(chosen))} of {len(chosen):,}</p><p>{tags}</p>"


@lru_cache(maxsize=256)
def _tag(name: str) -> str:
    """Return an HTML element that contains the image; empty if it is not known here."""
    picture = thumbnail(name)
    if picture is None:
        return ""
    file = BytesIO()
    picture.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return f'<img src="data:image/png;base64,{data}" alt="image {name[:8]}" title="image {name}">'
