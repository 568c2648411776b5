"""Errors for a file that cannot be data: it is missing, is of an unknown type, or is not UTF-8 text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import Path

from models.base.errors import UserError, shortened

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""First bytes of UTF-16; UTF-32 begins in the same way or with two NULs."""


def require_data_file(path: Path, suffixes: Sequence[str], key: str) -> bool:
    """Return whether `path` is a file of a known type; False if it is a folder.

    Raises:
        UserError: it is neither; the message begins with `key` and suggests a correction.
    """
    shown = shortened(path, 120)
    try:
        if path.is_dir():
            return False
        there = path.is_file()
    except OSError as error:  # a name that the file system does not accept
        raise UserError(f"{key}: {shown}: {error.strerror}") from None
    if not there:
        meant = ""
        if HUB_ID.fullmatch(str(path)) and path.suffix.lower() not in suffixes and not path.parent.is_dir():
            meant = f"; a data set of the hub is downloaded first: `hf download --repo-type dataset {shown}`"
        raise UserError(f"{key}: {shown}: no such file{meant}")
    if path.suffix.lower() not in suffixes:
        known = f"(known: {', '.join(suffixes)})"
        if path.suffix.lower() in PACKED:
            raise UserError(f"{key}: {shown}: packed; unpack it first {known}")
        raise UserError(f"{key}: {shown}: unknown kind of file {known}")
    return True


def not_utf8(file: Path) -> str:
    """Describe the error of a text file that is not UTF-8, with the first line that does not decode."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1 and line.startswith(WIDE):
                return f"{file}: not UTF-8 but UTF-16; save it as UTF-8"
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                return (
                    f"{file}, line {number}: not UTF-8 text (byte 0x{byte:02x} at position {error.start + 1}); "
                    "if it is Latin-1 or Windows-1252, save it as UTF-8"
                )
    return f"{file}: not UTF-8 text"
