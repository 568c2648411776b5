"""Header of a safetensors file: names and shapes of its tensors, read without their values.

A file is eight bytes with the length of a JSON header, the header, then the values that its offsets point into.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.base.errors import UserError
from models.base.strict_json import JsonError, parse_json

LONGEST_HEADER = 100_000_000
"""Maximum size of a header, bytes, as the format defines it."""


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's tensors, name -> shape.

    Raises:
        UserError: the file is not a safetensors file, or was cut short.
    """
    header, begin = read_header(file)
    try:
        tensors = {name: _tensor(entry) for name, entry in header.items() if name != "__metadata__"}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise UserError(f"{file}: no safetensors file (its header is of another kind)") from None
    end, size = begin + max((last for _, last in tensors.values()), default=0), file.stat().st_size
    if end != size:
        raise UserError(f"{file}: cut short or damaged, {size} bytes where its header asks for {end}")
    return {name: shape for name, (shape, _) in tensors.items()}


def read_header(file: Path) -> tuple[Any, int]:
    """Return the header, unchanged, and the position in the file that its offsets count from.

    Raises:
        UserError: the file is not a safetensors file, or was cut short.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as handle:
            length = int.from_bytes(handle.read(8), "little")
            if size < 8 or length > min(LONGEST_HEADER, size - 8):
                raise UserError(f"{file}: no safetensors file, or cut short")
            return parse_json(handle.read(length).decode("utf-8")), 8 + length
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    except (JsonError, UnicodeDecodeError):
        raise UserError(f"{file}: no safetensors file (its header is not JSON)") from None


def _tensor(entry: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return the shape and last byte of one entry of a header."""
    first, last = entry["data_offsets"]
    if not all(isinstance(number, int) for number in (first, last, *entry["shape"])):
        raise ValueError("a shape or an offset is not a whole number")
    return tuple(entry["shape"]), last
