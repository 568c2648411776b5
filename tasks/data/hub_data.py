"""Rows of data sets of the Hugging Face hub, stored as Parquet where the preparation reads them.

    .rewardflow/hub_data/OWNER--NAME/COMMIT/config[-NAME][-split-NAME]/SPLIT-00000.parquet

A revision is resolved to its commit once, and everything after that names the commit. The `datasets` library reads the
configurations and splits of the card, and the rows of the files, in batches. A folder is complete or is not there; an
interrupted fetch begins it again, with the downloads in the cache of the hub's client.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from models.base.atomic_write import replace_folder
from models.base.disk import needs_space
from models.base.errors import UserError, listed, shortened
from models.datasets.data_files import HUB_METADATA
from models.datasets.hub_reference import DataPath, HubReference, is_hub_reference, parse_hub_reference
from models.datasets.settings import DataSettings
from tasks.data.dvc_command import Report
from tasks.data.hub_files import CARDS, Snapshot, fetch_file, find_snapshot

BATCH_ROWS = 4096
READERS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv",
           ".arrow": "arrow"}  # fmt: skip
"""Type of a file -> reader of the `datasets` library."""
PACKED = (".gz", ".bz2", ".xz", ".zst")
OPTIONS = {"csv": "sep", "json": "field"}
"""Setting of a configuration in the card that changes how its files are read."""


def fetch_hub_data(settings: DataSettings, report: Report = print) -> tuple[DataSettings, str]:
    """Store the rows of all hub references of a `data:` section, and replace their revisions by commits.

    Args:
        settings: the section.
        report: called with a line for each reference that is resolved or fetched.

    Returns:
        The section with commits, and why a reference is not pinned; "" if all name a commit.

    Raises:
        UserError: a data set cannot be found, fetched or read; the library `datasets` is not installed.
    """
    update: dict[str, tuple[DataPath, ...]] = {}
    unpinned: list[str] = []
    for key, paths in (("path", settings.path), ("test_path", settings.test_path)):
        resolved: list[DataPath] = []
        for path in paths or ():
            if not is_hub_reference(path):
                resolved.append(path)
                continue
            reference = parse_hub_reference(path)
            try:
                known = _stored(reference, report)
            except UserError as error:
                raise UserError(f"data.{key}: {error}") from None
            resolved.append(str(known))
            if not reference.is_pinned:
                unpinned.append(f"data.{key}: {reference} is whatever the hub has under that name; write {known}")
        if paths:
            update[key] = tuple(resolved)
    return settings.model_copy(update=update), "; ".join(unpinned)


def _stored(reference: HubReference, report: Report) -> HubReference:
    """Return the reference with its commit, whose rows are stored."""
    if reference.is_pinned and reference.folder.is_dir():
        with suppress(OSError):  # a state folder that is only read
            os.utime(reference.folder)  # the time of its last use, for `rewardflow gc`
        return reference
    snapshot = find_snapshot(reference)
    known = reference._replace(revision=snapshot.commit)
    if not reference.is_pinned:
        report(f"{reference} is the commit {snapshot.commit}")
    if not known.folder.is_dir():
        report(f"{known} is fetched into {known.folder}")
        if not snapshot.list_known:
            report(f"{known}: the list of its files is not known; those in the cache of the hub's client are read")
        _store(known, snapshot)
    return known


def _store(reference: HubReference, snapshot: Snapshot) -> None:
    """Write the rows of a reference as Parquet."""
    library = _library()
    with (
        needs_space(reference.folder),
        tempfile.TemporaryDirectory(prefix="rewardflow-hub-") as folder,
        ExitStack() as stack,
    ):
        card = _chosen(library, reference, snapshot, Path(folder))
        partial = stack.enter_context(replace_folder(reference.folder))
        rows: dict[str, int] = {}
        for split, names in card.files.items():
            rows[split] = _write_split(library, reference, snapshot, card, split, names, partial, Path(folder))
        if not sum(rows.values()):
            raise UserError(f"{reference}: no rows")
        facts = {"source": str(reference), "files": card.files, "rows": rows}
        (partial / HUB_METADATA[1]).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


class _Card:
    """The files of one configuration, by split, and the options with which they are read."""

    def __init__(self, files: Mapping[str, Sequence[str]], options: Mapping[str, Any]) -> None:
        self.files, self.options = dict(files), dict(options)


def _chosen(library: Any, reference: HubReference, snapshot: Snapshot, scratch: Path) -> _Card:
    """Choose the files of a reference by the card, or by their names if there is none.

    The library sees a folder of empty files with the names of the data set's, so that only the chosen ones are fetched.

    Raises:
        UserError: the data set has no such configuration or split, several configurations and no default one, or no
            data files.
    """
    tree = scratch / "tree"
    tree.mkdir()
    for name in snapshot.names:
        _require_inside(reference, name)
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(fetch_file(reference, snapshot, name).read_bytes() if name in CARDS else b"")
    if not any(_reader(name) for name in snapshot.names):
        scripts = [name for name in snapshot.names if name.endswith(".py")]
        why = f"only a loading script ({scripts[0]}), and code of the hub is never run" if scripts else "no data files"
        raise UserError(f"{reference}: the repository has {why}; use one with {', '.join(READERS)} files")
    try:
        configs: list[str] = library.get_dataset_config_names(str(tree))
        default: str | None = library.get_dataset_default_config_name(str(tree))
    except Exception as error:  # whatever the library raises for a card that it cannot read
        raise UserError(f"{reference}: {_reason(error)}") from None
    if reference.config and reference.config not in configs:
        raise UserError(f"{reference}: no configuration '{reference.config}'; it has {listed(configs)}")
    config = reference.config or default or (configs[0] if len(configs) == 1 else "")
    if not config:
        raise UserError(f"{reference}: it has the configurations {listed(configs)}; name one: {reference}:{configs[0]}")
    try:
        builder = library.load_dataset_builder(str(tree), config, cache_dir=str(scratch / "cache"))
    except Exception as error:
        raise UserError(f"{reference}: the configuration '{config}': {_reason(error)}") from None
    base = tree.resolve()
    files = {
        str(split): [Path(str(file)).resolve().relative_to(base).as_posix() for file in held]
        for split, held in (builder.config.data_files or {}).items()
    }
    if reference.split and reference.split not in files:
        raise UserError(f"{reference}: no split '{reference.split}'; '{config}' has {listed(sorted(files))}")
    kept = {split: held for split, held in files.items() if reference.split in ("", split)}
    options = {name: value for name in OPTIONS.values() if (value := getattr(builder.config, name, None)) is not None}
    return _Card(kept, options)


def _write_split(
    library: Any,
    reference: HubReference,
    snapshot: Snapshot,
    card: _Card,
    split: str,
    names: Sequence[str],
    folder: Path,
    scratch: Path,
) -> int:
    """Write the rows of a split, one file for each that it has; return their number."""
    rows = 0
    for number, name in enumerate(names):
        kind = _reader(name)
        if kind is None:
            raise UserError(f"{reference}: {name} is of an unknown type; known are {', '.join(READERS)}")
        file = fetch_file(reference, snapshot, name)
        options = {OPTIONS[kind]: card.options[OPTIONS[kind]]} if OPTIONS.get(kind) in card.options else {}
        if PurePosixPath(name).suffixes[-1:] == [".tsv"]:
            options = {"sep": "\t"}
        try:
            rows += _write(_tables(library, kind, file, options, scratch), folder / f"{split}-{number:05d}.parquet")
        except UserError:
            raise
        except Exception as error:  # whatever the library raises for a file that it cannot read
            raise UserError(f"{reference}: {name} cannot be read as {kind}: {_reason(error)}") from None
    return rows


def _tables(library: Any, kind: str, file: Path, options: Mapping[str, Any], scratch: Path) -> Iterator[pa.Table]:
    """Yield the rows of a file in batches, with values of mixed types as the text of their JSON."""
    builder = library.load_dataset_builder(
        kind, data_files={"train": [str(file)]}, cache_dir=str(scratch / "cache"), **options
    )
    rows = builder.as_streaming_dataset(split="train").with_format("arrow")
    for table in rows.iter(batch_size=BATCH_ROWS):
        yield _without_mixed(table)


def _write(tables: Iterator[pa.Table], path: Path) -> int:
    rows = 0
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for table in tables:
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, compression="zstd"))
            writer.write_table(table.cast(writer.schema))
            rows += table.num_rows
    return rows


def _without_mixed(table: pa.Table) -> pa.Table:
    """Return a table without metadata, whose columns with values of mixed types are the text of their JSON."""
    for at, field in enumerate(table.schema):
        if _is_mixed(field.type):
            values = [
                None if value is None else json.dumps(_decoded(value, field.type), ensure_ascii=False)
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pa.array(values, pa.string()))
    return table.replace_schema_metadata(None)


def _is_mixed(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType) or any(
        _is_mixed(kind.field(at).type) for at in range(kind.num_fields)
    )


def _decoded(value: Any, kind: pa.DataType) -> Any:
    """Return a value whose parts of mixed types are JSON texts as the value that these texts mean."""
    if value is None:
        return None
    if isinstance(kind, pa.BaseExtensionType):
        return json.loads(value) if isinstance(value, str) else value
    if pa.types.is_struct(kind):
        return {kind.field(at).name: _decoded(value[kind.field(at).name], kind.field(at).type)
                for at in range(kind.num_fields)}  # fmt: skip
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_decoded(item, kind.value_type) for item in value]
    return value


def _reader(name: str) -> str | None:
    """Return the library's reader for a file; None if it is not a data file."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(name).suffixes]
    if suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    if PurePosixPath(name).name in HUB_METADATA or PurePosixPath(name).name.startswith("."):
        return None
    return READERS.get(suffixes[-1]) if suffixes else None


def _require_inside(reference: HubReference, name: str) -> None:
    place = PurePosixPath(name)
    if place.is_absolute() or ".." in place.parts:
        raise UserError(f"{reference}: the file '{shortened(name)}' is outside of the repository")


def _reason(error: Exception) -> str:
    """Return the first line of an error, without the paths of this machine's temporary files."""
    text = (str(error).strip().splitlines() or [""])[0]
    cause = error.__cause__
    if cause is not None and str(cause).strip():
        text = str(cause).strip().splitlines()[0]
    return f"{shortened(text, 200)} ({type(error).__name__})"


def _library() -> Any:
    """Import the `datasets` library, which takes seconds."""
    try:
        return import_module("datasets")
    except ImportError:
        raise UserError("hf:// needs the package datasets, which is not installed; install the extra hub") from None
