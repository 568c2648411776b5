"""Inspection of data files: their shape, splits by file, columns that are not read, and the first row as read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.base.errors import UserError, listed
from models.datasets.formats import Record, convert_rows
from models.datasets.hub_reference import DataPath, is_hub_reference
from models.datasets.image_columns import IMAGE_COLUMNS
from models.datasets.prompt_groups import batches_of
from models.datasets.raw import RawRow
from models.datasets.recognition import recognise, with_known_format
from models.datasets.schema import Kind, Row
from models.datasets.settings import DataSettings, FormatName
from models.datasets.shards import columns_in, columns_read
from models.datasets.sources import Source, sources_of


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
    made: dict[Kind, int] = field(default_factory=dict)
    """Rows of each kind, before equal prompts become one problem."""
    unused: int = 0
    """Number of completions that are in no row, see `models.datasets.candidates`."""
    recipe: dict[str, str] = field(default_factory=dict)
    """Keys of a recipe that were recognised -> their values; empty if the format was given."""

    def text(self) -> str:
        """Return the inspection as text for a terminal."""
        lines = [f"shape: {self.format} -> {', '.join(self.first) or 'no rows'}"]
        if self.recipe:
            lines.append("in a recipe: " + " ".join(f"--set '{key}={value}'" for key, value in self.recipe.items()))
        lines.append("files:")
        names = [str(file.path) for file in self.files]
        width = max(map(len, names), default=0)
        for name, file in zip(names, self.files, strict=True):
            lines.append(f"  {name:{width}}  {file.rows:>9,} rows  {file.split or 'split by column or shares'}")
        if self.passed_over:
            lines.append(f"files and folders passed over: {listed([path.name for path in self.passed_over], 40)}")
        lines.append(f"rows: {sum(file.rows for file in self.files):,}")
        if self.made:
            lines.append("made: " + ", ".join(f"{count:,} {kind}" for kind, count in self.made.items()))
        if self.unused:
            lines.append(
                f"completions in no row: {self.unused:,} (no other completion of the prompt has another score)"
            )
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
    given, settings = settings, with_known_format(settings, kinds=True)
    made = Inspection(settings.format or "")
    if given.format == "auto":
        named = {"data.path": given.path, "data.test_path": given.test_path}
        for key, paths in named.items():
            if paths and any(map(is_hub_reference, paths)):
                made.recipe[key] = f"[{', '.join(map(str, paths))}]"
        made.recipe["data.format"] = made.format
        if settings.columns:
            made.recipe["data.columns"] = f"{{{', '.join(f'{name}: {own}' for name, own in settings.columns.items())}}}"
    ignored = frozenset(settings.ignore)
    for source in sources_of(settings):
        first, present = _looked_through(source)
        columns = columns_read(source, first, present)
        images = {column: column for column in IMAGE_COLUMNS if column in present - ignored}
        made.columns |= columns | images
        made.unread |= present - {*columns.values(), *images} - ignored
        rows = dict.fromkeys(source.files, 0)
        for batch in batches_of(source, None):
            for raw in batch.rows():
                for row in (raw, *raw.others):
                    rows[row.file] += 1
                try:
                    records = convert_rows(source.format, columns, raw, ignored)
                    for record in records:
                        source.split_of(record.split, raw.place)
                except UserError as error:
                    made.refused += 1 + len(raw.others)
                    made.reason = made.reason or str(error)
                    continue
                for record in records:
                    made.unread |= record.unread - ignored
                    made.unused += record.unused
                    _keep_first(made, source, record)
        made.files += [InspectedFile(file, count, source.split_shown) for file, count in rows.items()]
    made.passed_over = _passed_over(settings, {file.path for file in made.files})
    return made


def _passed_over(settings: DataSettings, read: set[Path]) -> list[Path]:
    """Return the entries of the given folders that are not read, without hidden ones."""
    within = read.union(*(file.parents for file in read))
    paths = [*(settings.path or ()), *(settings.test_path or ())]
    folders = [folder for folder in (Path(path) for path in paths if not is_hub_reference(path)) if folder.is_dir()]
    entries = (entry for folder in folders for entry in sorted(folder.iterdir()) if not entry.name.startswith("."))
    return [entry for entry in entries if entry not in within]


def _looked_through(source: Source) -> tuple[RawRow, frozenset[str]]:
    looked = [columns_in(batch) for batch in batches_of(source, None)]
    return looked[0][0], frozenset().union(*(present for _, present in looked))


def _keep_first(made: Inspection, source: Source, record: Record) -> None:
    for kind in source.kinds:
        if kind in record.rows:
            made.first.setdefault(kind, dict(record.rows[kind]))
            made.made[kind] = made.made.get(kind, 0) + 1


def recognised_format(paths: Sequence[DataPath], columns: Mapping[str, str]) -> FormatName:
    """Return the format that `models.datasets.recognition.recognise` recognises; same arguments and errors."""
    return recognise(paths, columns).format
