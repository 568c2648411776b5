"""Rows from a user's files: JSON lines, JSON lists, CSV and Parquet, each row with its place in the file.

Files are read in batches of rows, so that no more than a few batches are in memory, however long a file is (a .json
file is one value and is read whole). The reader of a file cuts it into batches. The consumer of a batch parses its
rows, possibly in another process.

Everything becomes text: a missing or null value "", a whole-numbered float its whole number. An unreadable file (broken
JSON, a CSV row longer than its header, a duplicate column or key, corrupt Parquet, text that is not UTF-8) is a
UserError that names file and line, and so is a value that is neither text nor a finite number. Spaces around the name
of a column are removed. Whether the values are fit for training is not checked here.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from models.base.errors import UserError, shortened
from models.base.strict_json import JsonError, parse_json
from models.datasets.arrow_rows import ArrowRows, Unreadable
from models.datasets.schema import open_parquet, unreadable_parquet
from models.datasets.text_files import not_utf8

BATCH_ROWS = 16_384
BATCH_CHARACTERS = 1 << 24
"""A batch ends when it has this many rows, or this much text."""
LONGEST_CSV_FIELD = 1 << 30  # characters; Python's own limit of 128 KiB is too short for a document


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row of a file. `number` counts from 1: lines of a text file, rows of a Parquet file."""

    file: Path
    number: int
    values: Mapping[str, Any]
    others: tuple[RawRow, ...] = ()
    """Further rows with the same prompt, if the format reads them together (models/datasets/prompt_groups.py)."""

    @property
    def columns(self) -> set[str]:
        """Columns of this row and of those read with it."""
        return set(self.values).union(*(row.values for row in self.others))

    @property
    def place(self) -> str:
        """The place of the row in the file, for messages."""
        return f"{self.file}, {'row' if self.file.suffix.lower() == '.parquet' else 'line'} {self.number}"

    def text(self, column: str) -> str:
        """Return the value of a column as text; "" if it is missing or null.

        Raises:
            UserError: the value is neither text nor a finite number, is text that is not valid Unicode or contains a
                NUL, or cannot be read.
        """
        return self.as_text(self.values.get(column), column)

    def as_text(self, value: Any, column: str) -> str:
        """Return a value of `column` as text; raises the same errors as `text`."""
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
        if isinstance(value, Unreadable):
            raise UserError(
                f"{self.place}: column '{shortened(column)}' holds a value that cannot be read "
                f"({shortened(value.reason, 200)})"
            )
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            held = str(value).lower() if isinstance(value, bool) else f"a {type(value).__name__}"
            raise UserError(f"{self.place}: column '{shortened(column)}' holds {held}, not text; write it as text")
        return str(int(value) if value == int(value) else value)


@dataclass(frozen=True)
class RawBatch:
    """Consecutive rows of a file, not parsed yet; or the error, if the file cannot be read any further."""

    file: Path
    numbers: Sequence[int] = ()
    """Line or row numbers in the file, from 1."""
    held: Iterable[Any] = ()
    """Content of these rows, in the form of the reader that cut the batch."""
    parse: Callable[[Path, int, Any], RawRow] = RawRow
    broken: UserError | None = None

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows, in order.

        Raises:
            UserError: a row is malformed, or the file cannot be read.
        """
        if self.broken is not None:
            raise self.broken
        for number, content in zip(self.numbers, self.held, strict=True):
            yield self.parse(self.file, number, content)


Piece = tuple[int, Any, int]
"""A row as a reader cuts it: its number, its content, its number of characters."""


def read_batches(files: Iterable[Path], limit: int | None = None) -> Iterator[RawBatch]:
    """Yield all rows of the files in order, or the first `limit` of them. An error in a file is yielded as a batch in
    its place: the caller parses the rows before it first, so that their errors are reported first.

    Raises:
        UserError: the files have no rows at all.
    """
    files = list(files)
    count = 0
    for file in files:
        if limit is not None and count >= limit:
            break
        try:
            for batch in _read(file, None if limit is None else limit - count):
                count += len(batch.numbers)
                yield batch
        except UserError as error:
            yield RawBatch(file, broken=error)
            return
    if not count:
        raise UserError(f"{', '.join(str(file) for file in files)}: no rows")


def _read(file: Path, limit: int | None) -> Iterator[RawBatch]:
    readers = {".jsonl": _json_lines, ".json": _json_list, ".csv": _csv}
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet(file, limit)
        return
    parse, pieces = readers[suffix](file)
    numbers: list[int] = []
    held: list[Any] = []
    size = 0
    try:
        for number, content, length in islice(_said(file, pieces), limit):
            numbers.append(number)
            held.append(content)
            size += length
            if len(held) == BATCH_ROWS or size >= BATCH_CHARACTERS:
                yield RawBatch(file, numbers, held, parse)
                numbers, held, size = [], [], 0
    except UserError as error:
        if held:
            yield RawBatch(file, numbers, held, parse)
        raise error
    if held:
        yield RawBatch(file, numbers, held, parse)


def _said(file: Path, pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Yield the pieces; an error in reading the file becomes a UserError."""
    try:
        yield from pieces
    except UnicodeDecodeError:
        raise UserError(not_utf8(file)) from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from error


Reader = tuple[Callable[[Path, int, Any], RawRow], Iterator[Piece]]


def _json_lines(file: Path) -> Reader:
    def pieces() -> Iterator[Piece]:
        with file.open(encoding="utf-8-sig") as lines:
            begun = False
            for number, line in enumerate(lines, start=1):
                if line.isspace():
                    continue
                if not begun and line.lstrip()[0] == "[":
                    raise UserError(
                        f"{file}, line {number}: a JSON list, but .jsonl is one object a line; name the file .json"
                    )
                begun = True
                yield number, line, len(line)

    return _json_line, pieces()


def _json_line(file: Path, number: int, line: str) -> RawRow:
    return _json_row(file, number, _json(file, line.strip(), number))


def _json_list(file: Path) -> Reader:
    def pieces() -> Iterator[Piece]:
        content = _json(file, file.read_text(encoding="utf-8-sig"), 1)
        if not isinstance(content, list):
            raise UserError(f"{file}: a .json file must hold a list of objects (one object a line is .jsonl)")
        for number, value in enumerate(content, start=1):
            yield number, value, 0

    return _json_row, pieces()


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
    for name in value:  # not a generator expression: this runs for every row
        if name != name.strip():
            _names(list(value), f"{file}, line {number}")
            return RawRow(file, number, {name.strip(): content for name, content in value.items()})
    return RawRow(file, number, value)


def _names(columns: Sequence[str], place: str) -> list[str]:
    """Return the columns of a header without the spaces around them.

    Raises:
        UserError: two columns have the same name.
    """
    names = [column.strip() for column in columns]
    for name in names:
        if name and names.count(name) > 1:
            raise UserError(
                f"{place}: {names.count(name)} columns are called '{shortened(name)}'; rename or remove one"
            )
    return names


def _csv(file: Path) -> Reader:
    names: list[str] = []

    def pieces() -> Iterator[Piece]:
        csv.field_size_limit(LONGEST_CSV_FIELD)
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(_without_nul(text, file), strict=True)
            try:
                for fields in reader:
                    if not names:
                        names.extend(_names(fields, f"{file}, line {reader.line_num}"))
                    elif fields:
                        if len(fields) != len(names):
                            problem = "more" if len(fields) > len(names) else "fewer"
                            raise UserError(f"{file}, line {reader.line_num}: {problem} fields than the header")
                        yield reader.line_num, fields, sum(map(len, fields))
            except csv.Error as error:
                raise UserError(f"{file}, line {reader.line_num}: not valid CSV ({error})") from error

    return partial(_csv_row, names), pieces()


def _csv_row(names: Sequence[str], file: Path, number: int, fields: Sequence[str]) -> RawRow:
    return RawRow(file, number, dict(zip(names, fields, strict=True)))


def _without_nul(lines: Iterable[str], file: Path) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise UserError(f"{file}, line {number}: a NUL character; is the file UTF-16, or cut by a full disk?")
        yield line


def _parquet(file: Path, limit: int | None) -> Iterator[RawBatch]:
    number = 0
    source = open_parquet(file)
    names = _names(source.schema_arrow.names, str(file))
    try:
        for batch in source.iter_batches(_rows_of(source.metadata)):
            taken = batch if limit is None else batch.slice(0, limit - number)
            if not taken.num_rows:
                return
            numbers = range(number + 1, number + 1 + taken.num_rows)
            yield RawBatch(file, numbers, ArrowRows(taken.rename_columns(names)))
            number += taken.num_rows
    except (pa.ArrowException, OSError) as error:
        raise unreadable_parquet(file, error) from error


def _rows_of(metadata: pq.FileMetaData) -> int:
    """Return the number of rows per batch of such a file, from the bytes per row of its widest row group."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    width = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
    return max(1, min(BATCH_ROWS, int(BATCH_CHARACTERS / max(1.0, width))))
