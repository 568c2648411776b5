"""Images in the rows of a user's files: the columns `image` and `images` become references in the prompt.

A value is a path relative to the file, a data URL, bytes, a struct of `bytes` and `path` as in files of the hub, or a
list of these. The references replace the placeholders `<image>` of the prompt in order. If it has none, they come
before it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath
from typing import Any

from models.base.errors import UserError, shortened
from models.base.images import reference_to
from models.base.pictures import decoded
from models.datasets.raw import RawRow

IMAGE_COLUMNS = ("image", "images")
PLACEHOLDER = "<image>"
"""Text of a prompt in whose place an image belongs."""


def with_images(raw: RawRow, prompt: str, ignored: AbstractSet[str] = frozenset()) -> str:
    """Return a prompt with references to the images of its row; the images are known to this process from then on.

    Args:
        raw: the row.
        prompt: text of the prompt.
        ignored: columns that are left out on purpose.

    Raises:
        UserError: an image cannot be read or decoded, or the prompt has another number of placeholders.
    """
    images = [
        (column, value)
        for column in IMAGE_COLUMNS
        if column not in ignored
        for value in _values(raw.values.get(column))
    ]
    if not images:
        return prompt
    references = []
    for column, value in images:
        place = f"{raw.place}: column '{column}'"
        content = _content(raw, value, place)
        decoded(content, place)
        references.append(reference_to(content))
    pieces = prompt.split(PLACEHOLDER)
    if len(pieces) == 1:
        return f"{' '.join(references)} {prompt}"
    if len(pieces) != len(references) + 1:
        raise UserError(
            f"{raw.place}: the prompt has {len(pieces) - 1} placeholders {PLACEHOLDER}, and the row has "
            f"{len(references)} images"
        )
    return "".join(piece + reference for piece, reference in zip(pieces, [*references, ""], strict=True))


def _values(value: Any) -> Sequence[Any]:
    """Return the images of a column as a list; empty if it has none."""
    if value is None or value == "":
        return ()
    return list(value) if isinstance(value, list | tuple) else [value]


def _content(raw: RawRow, value: Any, place: str) -> bytes:
    """Return the bytes of an image."""
    if isinstance(value, Mapping):
        if isinstance(value.get("bytes"), bytes):
            return bytes(value["bytes"])
        value = value.get("path")
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value:
        raise UserError(f"{place} holds no image: give a path, a data URL or bytes")
    if value.startswith("data:"):
        head, _, text = value.partition(",")
        try:
            return base64.b64decode(text if head.endswith(";base64") else "?", validate=True)
        except binascii.Error:
            raise UserError(f"{place} holds a data URL that is not base64") from None
    if "://" in value:
        raise UserError(f"{place} holds the address {shortened(value)}, and addresses are not fetched; give the file")
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise UserError(f"{place}: {shortened(value)} is outside the folder of the file; give a path inside it")
    try:
        return (raw.file.parent / path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{place}: {shortened(value)} cannot be read ({reason})") from None
