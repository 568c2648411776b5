"""Rows from a user's files: JSON lines, JSON lists, CSV and Parquet, each row with the place that it came from.

Everything becomes text: a missing or null value "", a whole-numbered float its whole number. What makes a file
unreadable (broken JSON, a CSV row longer than its header, a column or key that stands twice, corrupt Parquet, text that
is not UTF-8) is a UserError that names file and line, and so is a value that is neither text nor a finite number.
Spaces around the name of a column are no part of it. Whether the values are fit for training is not asked here.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

from models.datasets.schema import read_parquet
from models.datasets.strict_json import JsonError, parse_json
from models.datasets.text_files import not_utf8, require_data_file
from models.errors import UserError, shortened

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
        return f"{self.file}, {'row' if self.file.suffix.lower() == '.parquet' else 'line'} {self.number}"

    def text(self, column: str) -> str:
        """The value of a column as text; "" where it is missing or null.

        Raises:
            UserError: the value is neither text nor a finite number, or text that is no valid Unicode or holds a NUL.
        """
        return self.as_text(self.values.get(column), column)

    def as_text(self, value: Any, column: str) -> str:
        """A value that stands in `column`, as text; raises as `text` does."""
        if isinstance(value, str):
            if "\0" in value:
                raise UserError(f"{self.place}: column '{shortened(column)}' holds a NUL character")
            try:
                value.encode("utf-8")
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{self.place}: column '{shortened(column)}' is not valid Unicode ({error.reason})"
                ) from error
            return value
        if value is None or (isinstance(value, (float, Decimal)) and math.isnan(value)):
            return ""
        if isinstance(value, (float, Decimal)) and math.isinf(value):
            raise UserError(f"{self.place}: column '{shortened(column)}' holds {value}, not a finite number")
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            held = str(value).lower() if isinstance(value, bool) else f"a {type(value).__name__}"
            raise UserError(f"{self.place}: column '{shortened(column)}' holds {held}, not text; write it as text")
        return str(int(value) if value == int(value) else value)


def files_of(paths: Iterable[Path], key: str = "data.path") -> list[Path]:
    """The data files that paths name: files as they are, folders by their files of a known kind, sorted by name.

    Raises:
        UserError: a path does not exist, a folder has no data file, a file is of an unknown kind.
    """
    files: list[Path] = []
    for path in paths:
        if require_data_file(path, SUFFIXES, key):
            files.append(path)
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        if not inside:
            raise UserError(f"{key}: the folder {path} has no {', '.join(SUFFIXES)} file")
        files += inside
    return files


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
        yield from readers[file.suffix.lower()](file)
    except UnicodeDecodeError:
        raise UserError(not_utf8(file)) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error


def _json_lines(file: Path) -> Iterator[RawRow]:
    with file.open(encoding="utf-8-sig") as lines:
        begun = False
        for number, line in enumerate(lines, start=1):
            if line.strip():
                if not begun and line.lstrip()[0] == "[":
                    raise UserError(
                        f"{file}, line {number}: a JSON list, but .jsonl is one object a line; name the file .json"
                    )
                begun = True
                yield _json_row(file, number, _json(file, line.strip(), number))


def _json_list(file: Path) -> Iterator[RawRow]:
    content = _json(file, file.read_text(encoding="utf-8-sig"), 1)
    if not isinstance(content, list):
        raise UserError(f"{file}: a .json file must hold a list of objects (one object a line is .jsonl)")
    for number, value in enumerate(content, start=1):
        yield _json_row(file, number, value)


def _json(file: Path, text: str, number: int) -> Any:
    try:
        return parse_json(text)
    except JsonError as error:
        hint = ""
        if file.suffix.lower() == ".json" and error.reason == "Extra data":
            hint = "; one object a line is .jsonl"
        raise UserError(f"{file}, line {number + error.line - 1}: not valid JSON ({error.reason}{hint})") from None


def _json_row(file: Path, number: int, value: Any) -> RawRow:
    if not isinstance(value, dict):
        raise UserError(f"{file}, line {number}: not a JSON object but a {type(value).__name__}")
    if any(name != name.strip() for name in value):
        _names(list(value), f"{file}, line {number}")
        value = {name.strip(): content for name, content in value.items()}
    return RawRow(file, number, value)


def _names(columns: Sequence[str], place: str) -> list[str]:
    """The columns of a header without the spaces around them.

    Raises:
        UserError: two columns have one name.
    """
    names = [column.strip() for column in columns]
    for name in names:
        if name and names.count(name) > 1:
            raise UserError(
                f"{place}: {names.count(name)} columns are called '{shortened(name)}'; rename or remove one"
            )
    return names


def _csv(file: Path) -> Iterator[RawRow]:
    csv.field_size_limit(LONGEST_CSV_FIELD)
    with file.open(encoding="utf-8-sig", newline="") as text:
        reader = csv.reader(_without_nul(text, file), strict=True)
        names: list[str] | None = None
        try:
            for fields in reader:
                if names is None:
                    names = _names(fields, f"{file}, line {reader.line_num}") if fields else None
                elif fields:
                    if len(fields) != len(names):
                        problem = "more" if len(fields) > len(names) else "fewer"
                        raise UserError(f"{file}, line {reader.line_num}: {problem} fields than the header")
                    yield RawRow(file, reader.line_num, dict(zip(names, fields, strict=True)))
        except csv.Error as error:
            raise UserError(f"{file}, line {reader.line_num}: not valid CSV ({error})") from error


def _without_nul(lines: Iterable[str], file: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise UserError(f"{file}, line {number}: a NUL character; is the file UTF-16, or cut by a full disk?")
        yield line


def _parquet(file: Path) -> Iterator[RawRow]:
    table = read_parquet(file)
    table = table.rename_columns(_names(table.column_names, str(file)))
    for number, values in enumerate(table.to_pylist(), start=1):
        yield RawRow(file, number, values)
