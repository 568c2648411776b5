"""Inspection of data files: their shape, splits by file, columns that are not read, and the first row as read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.base.errors import UserError, listed
from models.datasets.data_files import data_files
from models.datasets.formats import ASSISTANT, FINAL_ANSWER, Record, convert_row
from models.datasets.messages import CONVERSATIONS, conversation_in
from models.datasets.raw import RawRow, read_batches
from models.datasets.schema import KINDS, Kind, Row
from models.datasets.settings import DataSettings, FormatName
from models.datasets.shards import columns_in, columns_read
from models.datasets.sources import Source, is_of_kind, sources_of


@dataclass(frozen=True)
class InspectedFile:
    """A file that is read."""

    path: Path
    rows: int
    split: str
    """The split that the file name gives its rows; "" if a column or the shares decide."""


@dataclass
class Inspection:
    """Facts about the files of a data set."""

    format: str
    files: list[InspectedFile] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    """Field -> column that is read for it."""
    unread: set[str] = field(default_factory=set)
    """Columns, and keys of messages, that are not read."""
    passed_over: list[Path] = field(default_factory=list)
    """Files and folders in the given folders that are not read."""
    first: dict[Kind, Row] = field(default_factory=dict)
    """First row of each kind, as read."""
    refused: int = 0
    """Number of rows that a preparation would refuse."""
    reason: str = ""
    """Reason for the first refusal, with the place of the row."""

    def text(self) -> str:
        """Return the inspection as text for a terminal."""
        lines = [f"shape: {self.format} -> {', '.join(self.first) or 'no rows'}", "files:"]
        names = [str(file.path) for file in self.files]
        width = max(map(len, names), default=0)
        for name, file in zip(names, self.files, strict=True):
            lines.append(f"  {name:{width}}  {file.rows:>9,} rows  {file.split or 'split by column or shares'}")
        if self.passed_over:
            lines.append(f"files and folders passed over: {listed([path.name for path in self.passed_over], 40)}")
        lines.append(f"rows: {sum(file.rows for file in self.files):,}")
        lines.append("read: " + ", ".join(f"{name} <- {column}" for name, column in self.columns.items()))
        lines.append(f"not read: {listed(sorted(self.unread), 40)}")
        for kind, row in self.first.items():
            lines.append(f"first row of {kind}:")
            lines += [f"  {name}: {value!r}" for name, value in row.items()]
        if self.refused:
            lines.append(f"refused: {self.refused:,} rows, the first: {self.reason}")
        return "\n".join(lines)


def inspect(settings: DataSettings) -> Inspection:
    """Inspect the files of a data set in the way that a preparation reads them; nothing is written.

    Args:
        settings: the `data:` section.

    Raises:
        UserError: a file cannot be read, or the files do not fit together.
    """
    made = Inspection(settings.format or "")
    ignored = frozenset(settings.ignore)
    for source in sources_of(settings):
        first, present = _looked_through(source)
        columns = columns_read(source, first, present)
        made.columns |= columns
        made.unread |= present - set(columns.values()) - ignored
        for file in source.files:
            rows = 0
            for batch in read_batches([file]):
                for raw in batch.rows():
                    rows += 1
                    try:
                        record = convert_row(source.format, columns, raw, ignored)
                        source.split_of(record.split, raw.place)
                    except UserError as error:
                        made.refused += 1
                        made.reason = made.reason or str(error)
                        continue
                    made.unread |= record.unread - ignored
                    _keep_first(made, source, record)
            made.files.append(InspectedFile(file, rows, source.split_shown))
    made.passed_over = _passed_over(settings, {file.path for file in made.files})
    return made


def _passed_over(settings: DataSettings, read: set[Path]) -> list[Path]:
    """Return the entries of the given folders that are not read, without hidden ones."""
    within = read.union(*(file.parents for file in read))
    folders = [path for path in (*(settings.path or ()), *(settings.test_path or ())) if path.is_dir()]
    entries = (entry for folder in folders for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
    return [entry for entry in entries if entry not in within]


def _looked_through(source: Source) -> tuple[RawRow, frozenset[str]]:
    looked = [columns_in(batch) for batch in read_batches(source.files)]
    return looked[0][0], frozenset().union(*(present for _, present in looked))


def _keep_first(made: Inspection, source: Source, record: Record) -> None:
    for kind in source.kinds:
        made.first.setdefault(kind, dict(record.rows[kind]))


def recognised_format(paths: Sequence[Path], columns: Mapping[str, str]) -> FormatName:
    """Recognise the shape of files from their names and the first rows of the first file.

    Args:
        paths: the paths, as in `data.path`.
        columns: field -> column, for columns with other names.

    Raises:
        UserError: the shape is not a known one.
    """
    files = [file.path for file in data_files(paths)]
    if all(any(is_of_kind(file, kind) for kind in KINDS) for file in files) and not columns:
        return "kinds"
    row, present = columns_in(next(read_batches(files[:1])))
    has = {
        name for name in ("prompt", "completion", "answer", "chosen", "rejected") if columns.get(name, name) in present
    }
    whole = next((name for name in CONVERSATIONS if name in present), None)
    said = conversation_in(row, whole) if whole is not None else None
    if {"question", "answer"} <= present and FINAL_ANSWER in str(row.values.get("answer")):
        return "gsm8k"
    if {"canonical_solution", "test", "entry_point"} <= present:
        return "humaneval"
    if {"chosen", "rejected"} <= has:
        return "hh" if "prompt" not in has and ASSISTANT in str(row.values.get("chosen")) else "preferences"
    if "completion" in has or (said and said[-1]["role"] == "assistant" and "answer" not in has):
        return "demonstrations"
    if "prompt" in has or said:
        return "problems"
    raise UserError(
        f"{files[0]}: no known shape (columns: {listed(sorted(present))}); name it with --format, and its columns with "
        "--column FIELD=COLUMN"
    )
