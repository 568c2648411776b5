"""Rows from a user's files: JSON lines, JSON lists, CSV and Parquet, each row with the place that it came from.

Everything becomes text: a missing or null value "", a whole-numbered float its whole number. What makes a file
unreadable (broken JSON, a CSV row longer than its header, corrupt Parquet, text that is not UTF-8) is a UserError that
names file and line; whether the values are fit for training is not asked here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from models.datasets.schema import read_parquet
from models.errors import UserError

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
LONGEST_CSV_FIELD = 1 << 30  # characters; Python's own limit of 128 KiB is too short for a document


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as it stands in a file. `number` counts from 1: lines of a text file, rows of a Parquet file."""

    file: Path
    number: int
    values: Mapping[str, Any]

    @property
    def place(self) -> str:
        """Where the row stands, for messages."""
        return f"{self.file}, {'row' if self.file.suffix == '.parquet' else 'line'} {self.number}"

    def text(self, column: str) -> str:
        """The value of a column as text; "" where it is missing or null.

        Raises:
            UserError: the value is a list or an object, or text that is no valid Unicode.
        """
        value = self.values.get(column)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return ""
        if isinstance(value, (list, dict, bytes)):
            raise UserError(f"{self.place}: column '{column}' holds a {type(value).__name__}, not text")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = str(value)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(f"{self.place}: column '{column}' is not valid Unicode ({error.reason})") from error
        return text


def files_of(paths: Iterable[Path], key: str = "data.path") -> list[Path]:
    """The data files that paths name: files as they are, folders by their files of a known kind, sorted by name.

    Raises:
        UserError: a path does not exist, a folder has no data file, a file is of an unknown kind.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
            if not inside:
                raise UserError(f"{key}: the folder {path} has no {', '.join(SUFFIXES)} file")
            found += inside
        elif not path.is_file():
            raise UserError(f"{key}: {path}: no such file")
        elif path.suffix not in SUFFIXES:
            raise UserError(f"{key}: {path}: unknown kind of file (known: {', '.join(SUFFIXES)})")
        else:
            found.append(path)
    return found


def read_files(files: Iterable[Path], limit: int | None = None) -> list[RawRow]:
    """All rows of the files in order, or the first `limit` of them.

    Raises:
        UserError: a file cannot be read, or there is no row at all.
    """
    files = list(files)
    rows = list(islice((row for file in files for row in _read(file)), limit))
    if not rows:
        raise UserError(f"{', '.join(str(file) for file in files)}: no rows")
    return rows


def _read(file: Path) -> Iterator[RawRow]:
    readers = {".jsonl": _json_lines, ".json": _json_list, ".csv": _csv, ".parquet": _parquet}
    try:
        yield from readers[file.suffix](file)
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: not UTF-8 text (byte {error.start} of what was read)") from error
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error


def _json_lines(file: Path) -> Iterator[RawRow]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _json_row(file, number, _json(file, line.strip(), number))


def _json_list(file: Path) -> Iterator[RawRow]:
    content = _json(file, file.read_text(encoding="utf-8-sig"), 1)
    if not isinstance(content, list):
        raise UserError(f"{file}: a .json file must hold a list of objects (one object a line is .jsonl)")
    for number, value in enumerate(content, start=1):
        yield _json_row(file, number, value)


def _json(file: Path, text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = number + getattr(error, "lineno", 1) - 1
        reason = getattr(error, "msg", "nested too deeply")
        raise UserError(f"{file}, line {line}: not valid JSON ({reason})") from error


def _json_row(file: Path, number: int, value: Any) -> RawRow:
    if not isinstance(value, dict):
        raise UserError(f"{file}, line {number}: not a JSON object but a {type(value).__name__}")
    return RawRow(file, number, value)


def _csv(file: Path) -> Iterator[RawRow]:
    csv.field_size_limit(LONGEST_CSV_FIELD)
    with file.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True)
        try:
            for values in reader:
                if None in values or None in values.values():
                    problem = "more" if None in values else "fewer"
                    raise UserError(f"{file}, line {reader.line_num}: {problem} fields than the header")
                yield RawRow(file, reader.line_num, values)
        except csv.Error as error:
            raise UserError(f"{file}, line {reader.line_num}: not valid CSV ({error})") from error


def _parquet(file: Path) -> Iterator[RawRow]:
    for number, values in enumerate(read_parquet(file).to_pylist(), start=1):
        yield RawRow(file, number, values)
