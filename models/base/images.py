"""Images by their content: as references in texts, and as negative numbers among token ids.

    text        <image:9f86d081884c7d659a2feaa0c55ad015> what colour is the square
    token ids   3 6 -912873412 -55091824 -1930274 -730012 3 12 9 8 17

A reference names the image by the hash of its bytes, so texts that are equal have equal images, and everything that
compares texts needs no knowledge of images. Among token ids, an image is as many numbers below zero as the policy reads
image tokens. They are derived from the name, so prompts about different images never count as one prompt. The bytes are
in a table next to the rows of a data set (`images.parquet`), which is opened when its rows are read. Environments draw
further images while they answer; these are kept for a number of rounds.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.base.errors import UserError

IMAGES = "images.parquet"
"""File of the images of a data set: columns `name` and `content`."""
REFERENCE = re.compile(r"<image:([0-9a-f]{32})>")
"""A reference to an image in a text."""
_BITS = 31
"""Bits of an id of an image; token ids are 32 bits wide."""
ROUNDS_KEPT = 16
"""Number of rounds after which images that an environment drew are forgotten, unless it draws them again or a rollout
with them is remembered."""


@dataclass(frozen=True)
class ImageSpan:
    """The ids of one image in a row of token ids."""

    start: int
    """Index of its first id."""
    length: int
    """Number of its ids."""
    name: str
    """Its name."""


class _Known:
    """The images that this process can read, and their names by their first ids."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.names: dict[int, list[str]] = {}
        self.tables: dict[tuple[Path, int, int], list[str]] = {}
        self.drawn: dict[str, int] = {}
        """Round in which an image was drawn last, for images that are in no table."""
        self.round = 0

    def forget(self, name: str) -> None:
        names = self.names[_id(name, 0)]
        names.remove(name)
        if not names:
            del self.names[_id(name, 0)]
        del self.drawn[name], self.contents[name]

    def add(self, images: Mapping[str, bytes]) -> None:
        for name, content in images.items():
            self.drawn.pop(name, None)
            if name not in self.contents:
                self.contents[name] = content
                self.names.setdefault(_id(name, 0), []).append(name)


_KNOWN = _Known()


def name_of(content: bytes) -> str:
    """Return the name of an image: the first 128 bits of the SHA-256 of its bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()[:32]


def reference_to(content: bytes) -> str:
    """Return the reference to an image, and make the image known to this process."""
    name = name_of(content)
    _KNOWN.add({name: content})
    return f"<image:{name}>"


def drawn_reference(content: bytes) -> str:
    """Return the reference to an image that an environment drew, and make it known for `ROUNDS_KEPT` rounds."""
    name = name_of(content)
    if name not in _KNOWN.contents or name in _KNOWN.drawn:
        _KNOWN.add({name: content})
        _KNOWN.drawn[name] = _KNOWN.round
    return f"<image:{name}>"


def begin_round_of_drawing(remembered: Iterable[Sequence[int]] = ()) -> None:
    """Begin a round, and forget the images that were drawn too long ago.

    Args:
        remembered: rows of token ids whose images count as drawn in this round.
    """
    _KNOWN.round += 1
    for ids in remembered:
        _KNOWN.drawn.update(dict.fromkeys(drawn_among(ids), _KNOWN.round))
    for name in [name for name, drawn in _KNOWN.drawn.items() if drawn <= _KNOWN.round - ROUNDS_KEPT]:
        _KNOWN.forget(name)


def drawn_among(ids: Sequence[int]) -> dict[str, bytes]:
    """Return the images in a row of token ids that an environment drew, which no table has, by name."""
    if not ids or min(ids) >= 0:
        return {}
    return {span.name: _KNOWN.contents[span.name] for span in spans_of(ids) if span.name in _KNOWN.drawn}


def add_images(contents: Mapping[str, bytes]) -> None:
    """Make images known to this process, by their names."""
    _KNOWN.add(contents)


def opened_tables() -> tuple[Path, ...]:
    """Return the tables of images that this process has opened, for a process that works for it."""
    return tuple(sorted({file for file, _, _ in _KNOWN.tables}))


def images_in(text: str) -> list[str]:
    """Return the names of the images that a text refers to, in order, [references]."""
    return REFERENCE.findall(text)


def shows_images(text: str) -> bool:
    """Return whether a text refers to an image that this process knows."""
    return any(map(known_content, images_in(text)))


def without_images(text: str) -> str:
    """Return a text without its references to images."""
    return REFERENCE.sub("", text).lstrip() if REFERENCE.search(text) else text


def with_known_images(text: str) -> str:
    """Return a text whose references to images that this process does not know are broken up into plain text.

    A model can write such a reference.
    """
    return REFERENCE.sub(lambda match: match[0] if known_content(match[1]) else f"< {match[0][1:]}", text)


def open_images(folder: Path) -> list[str]:
    """Make the images of a data set known to this process. Returns their names; none if it has no images.

    Raises:
        UserError: the table of images cannot be read.
    """
    return open_table(folder / IMAGES)


def open_table(file: Path) -> list[str]:
    """Make the images of a table known to this process, if the file is there; see `open_images`."""
    try:
        stat = file.stat()
    except OSError:
        return []
    key = (file.resolve(), stat.st_size, stat.st_mtime_ns)
    if key not in _KNOWN.tables:
        contents = dict(read_images(file))
        _KNOWN.add(contents)
        _KNOWN.tables[key] = list(contents)
    return _KNOWN.tables[key]


def read_images(file: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each image of a table.

    Raises:
        UserError: the file cannot be read, lacks a column, or a name is not that of the content.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file, columns=["name", "content"])
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or ["unknown reason"])[0]
        raise UserError(f"{file}: not a readable table of images ({reason})") from error
    for row in table.to_pylist():
        if name_of(row["content"] or b"") != row["name"]:
            raise UserError(f"{file}: the content of image {row['name']} is not what its name states")
        yield row["name"], row["content"]


def write_images(file: Path, contents: Iterable[bytes]) -> None:
    """Write a table of images, each once, sorted by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from models.base.atomic_write import replace_file

    rows = sorted({name_of(content): content for content in contents}.items())
    schema = pa.schema([pa.field("name", pa.string(), False), pa.field("content", pa.binary(), False)])
    table = pa.Table.from_pylist([{"name": name, "content": content} for name, content in rows], schema=schema)
    with replace_file(file) as partial:
        pq.write_table(table, partial, compression="zstd")


def known_content(name: str) -> bytes | None:
    """Return the bytes of an image; None if this process does not know it."""
    return _KNOWN.contents.get(name)


def content_of(name: str) -> bytes:
    """Return the bytes of an image.

    Raises:
        UserError: no data set that was opened has the image.
    """
    if (content := known_content(name)) is None:
        raise UserError(f"image {name}: no data set that was read has it in {IMAGES}")
    return content


def data_url(content: bytes) -> str:
    """Return a PNG or JPEG file as a data URL."""
    kind = "png" if content.startswith(b"\x89PNG") else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def image_ids(name: str, count: int) -> tuple[int, ...]:
    """Return the token ids that represent an image, [count], all below zero.

    Raises:
        UserError: no data set that was opened has the image.
    """
    content_of(name)
    return tuple(_id(name, place) for place in range(count))


def spans_of(ids: Sequence[int]) -> list[ImageSpan]:
    """Find the images in a row of token ids.

    Raises:
        UserError: an id below zero belongs to no image that is known here.
    """
    spans: list[ImageSpan] = []
    at = 0
    while at < len(ids):
        if ids[at] >= 0:
            at += 1
            continue
        candidates = [ImageSpan(at, _length(name, ids, at), name) for name in _KNOWN.names.get(ids[at], ())]
        if not candidates:
            raise UserError(f"token id {ids[at]} belongs to no image that this process has read")
        spans.append(max(candidates, key=lambda span: span.length))
        at += spans[-1].length
    return spans


def _length(name: str, ids: Sequence[int], at: int) -> int:
    """Count the ids from `at` on that are those of an image."""
    length = 1
    while at + length < len(ids) and ids[at + length] == _id(name, length):
        length += 1
    return length


@lru_cache(maxsize=1 << 18)
def _id(name: str, place: int) -> int:
    """Return the id at a place of an image: minus one minus 31 bits that are derived from name and place."""
    digest = hashlib.sha256(f"{name} {place}".encode()).digest()
    return -1 - (int.from_bytes(digest[:4], "big") >> (32 - _BITS))
