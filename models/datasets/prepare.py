"""The prepare stage: raw files of any known format -> the prepared folder (its form is defined in `schema.py`).

A prompt belongs to one split, whatever kinds of row it is in: its hash with the seed decides, unless the data give a
split. If they give two, the rows of the earlier split are dropped (in the order train, validation, gate), and the
manifest counts them. Therefore no two splits share a prompt after normalisation. A prompt is one problem by its exact
text, and prompts that are equal only after normalisation are problems of one split. Rows that the data or `test_path`
hold out without a choice of validation or gate are divided between these two by the prompt's hash. The gate has only
problems: demonstrations and preferences of its prompts are left out, and counted.

    python -m models.datasets.prepare params.yaml SECTION data/prepared/NAME

SECTION is the key of the YAML file that holds the `data:` settings. The folder is written completely or not at all.

Data need not fit in memory: two hashes of every row's prompt are in memory, about fifty bytes, and texts are processed
in batches (`shards.py`), which are stored next to the folder until it is complete. A preparation that was killed
resumes with them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.base.atomic_write import replace_folder, write_file
from models.base.disk import needs_space
from models.base.errors import UserError, listed
from models.base.images import IMAGES
from models.datasets.data_files import files_of
from models.datasets.formats import SPLIT_IF_NAMED
from models.datasets.image_table import carried_images, images_of_shard
from models.datasets.params import checked, read_section, run_stage
from models.datasets.placing import Dropped, Flags, RowPlacement, SourceRows, place
from models.datasets.recognition import with_known_format
from models.datasets.row_groups import row_groups
from models.datasets.schema import COLUMNS, IDS, KINDS, MANIFEST, SPLITS, SYSTEM, Kind, Split, arrow_schema, file_name
from models.datasets.settings import DataSettings
from models.datasets.shards import Shard, has_system, read_kind, shards_of
from models.datasets.sources import Source, sources_of

ID_MARK: dict[Kind, str] = {"problems": "", "demonstrations": "d", "preferences": "p"}
"""Text before the number in a row's id, so that ids are unique in the data set: train-000123, train-d000123."""

Report = Callable[[str, int, int | None], None]
"""Called with the current step, the number of rows so far, and the total number if it is known."""
Counts = dict[Kind, dict[Split, int]]


@dataclass(frozen=True)
class _Numbered:
    """The shards of one source, and the placement of their rows."""

    shards: Sequence[Shard]
    splits: np.ndarray[tuple[int], np.dtype[np.int8]]
    placed: Mapping[Kind, RowPlacement]


def silent(stage: str, rows: int, of: int | None) -> None:
    """Ignore the progress."""


def require_wanted_splits(rows: Counts, settings: DataSettings) -> None:
    """Raise a UserError if a split with a share has no row of a kind in the data set; the gate needs only problems."""
    train = 1.0 if settings.test_path else 1.0 - settings.held_out_share
    shares = {"train": train, "validation": settings.validation_share, "gate": settings.gate_share}
    for kind, splits in rows.items():
        total = sum(splits.values())
        for split, count in splits.items():
            asked = shares[split] > 1e-9 and (split != "gate" or kind == "problems")
            if total and not count and asked:
                raise UserError(
                    f"data set {settings.name}: the {split} split of {kind} is empty ({total} rows in all, train"
                    f" {train:g}, validation {settings.validation_share:g}, gate {settings.gate_share:g})"
                )


def _read(settings: DataSettings, shards: Path, report: Report) -> tuple[list[_Numbered], list[Source], Dropped]:
    """Read all sources as shards and place their rows; return the placed shards, the sources, and the dropped counts.

    Raises:
        UserError: a file, column or row does not fit the settings, or a requested split has no row.
    """
    sources = sources_of(settings)
    rows = 0

    def count(more: int) -> None:
        nonlocal rows
        rows += more
        report("read", rows, None)

    read = [shards_of(source, settings, shards / str(number), report=count) for number, source in enumerate(sources)]
    parts = [
        SourceRows(
            np.concatenate([shard.prompts for shard in of_source]),
            np.concatenate([shard.alike for shard in of_source]),
            np.concatenate([shard.splits for shard in of_source]),
            source.kinds,
            _has(source.kinds, of_source),
        )
        for source, of_source in zip(sources, read, strict=True)
    ]
    placed, dropped = place(parts, derived_problems=settings.format not in ("problems", "kinds"))
    numbered = [
        _Numbered(of_source, part.splits, kinds) for of_source, part, kinds in zip(read, parts, placed, strict=True)
    ]
    given = [
        source.split is not None or any(shard.split_given for shard in of_source)
        for source, of_source in zip(sources, read, strict=True)
    ]
    if not any(says for says, source in zip(given, sources, strict=True) if not source.held_out):
        require_wanted_splits(_counts(numbered), settings)
    return numbered, sources, dropped


def _has(kinds: Sequence[Kind], shards: Sequence[Shard]) -> dict[Kind, Flags]:
    """Return kind -> whether each row of the shards has a row of it, [rows], for the kinds that some have not."""
    return {
        kind: np.concatenate([shard.has.get(kind, np.ones(len(shard.splits), dtype=bool)) for shard in shards])
        for kind in kinds
        if any(kind in shard.has for shard in shards)
    }


def _counts(numbered: Sequence[_Numbered]) -> Counts:
    """Count the rows of every kind and split."""
    counts: Counts = {kind: dict.fromkeys(SPLITS, 0) for kind in KINDS}
    for source in numbered:
        for kind, placed in source.placed.items():
            for number, split in enumerate(SPLITS):
                counts[kind][split] += int((placed.stays & (source.splits == number)).sum())
    return counts


def _rows(
    source: _Numbered, kind: Kind, *, system: bool
) -> Iterator[tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int8]]]]:
    """Yield the rows of a kind that stay, with all their columns, and the split of each, [rows]; shard by shard.

    Args:
        source: the source with its shards.
        kind: kind of the rows.
        system: whether the files have a column for system messages.
    """
    placed = source.placed[kind]
    start = 0
    for shard in source.shards:
        span = slice(start, start + len(shard.splits))
        start = span.stop
        stays = placed.stays[span]
        splits = source.splits[span][stays]
        content = read_kind(shard.file, kind).filter(pa.array(stays))
        ids = {"id": _ids(splits, ID_MARK[kind], placed.numbers[span][stays])}
        if "prompt_id" in COLUMNS[kind]:
            ids["prompt_id"] = _ids(splits, ID_MARK["problems"], placed.problems[span][stays])
        rows = {name: ids[name] if name in IDS else content[name] for name in COLUMNS[kind]}
        if system:
            known = SYSTEM in content.column_names
            rows[SYSTEM] = content[SYSTEM] if known else pa.repeat(pa.scalar(""), len(splits))
        yield pa.table(rows, schema=arrow_schema(kind, system=system)), splits


def _ids(
    splits: np.ndarray[tuple[int], np.dtype[np.int8]], mark: str, numbers: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> pa.Array:
    """Return ids such as train-000123, [rows]; "" if the number is below zero."""
    names = pa.array([f"{split}-{mark}" for split in SPLITS]).take(pa.array(splits))
    digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 6, "0")
    return pc.if_else(pa.array(numbers < 0), "", pc.binary_join_element_wise(names, digits, ""))


def name_sources(files: Sequence[Path]) -> dict[str, Path]:
    """Return a short name for each file, without the common folders, so that the location of the data has no effect."""
    parents = [file.absolute().parent for file in files]
    common = Path(os.path.commonpath(parents))
    return {file.absolute().relative_to(common).as_posix(): file for file in files}


def sha256_of(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare(settings: DataSettings, folder: Path, report: Report = silent) -> dict[str, Any]:
    """Write the prepared data set, the manifest last, and return the manifest; the format `auto` is recognised first.

    Args:
        settings: settings of the data.
        folder: folder to write.
        report: called with the progress.

    Raises:
        UserError: a file, column or row does not fit the settings, a requested split has no row, or the disk is full.
    """
    settings = with_known_format(settings)
    shards = folder.with_name(f".{folder.name}.shards")
    beside = folder.parent.is_dir()
    try:
        with needs_space(folder):
            _keep_only(shards, settings)
            numbered, sources, dropped = _read(settings, shards / "rows", report)
            manifest = _write(settings, folder, numbered, dropped, sources, report)
    except Exception:  # the shards are useful after a kill, but not after an error
        shutil.rmtree(shards, ignore_errors=True)
        if not beside:
            with suppress(OSError):  # it may contain other data by now
                folder.parent.rmdir()
        raise
    shutil.rmtree(shards)
    return manifest


def _write(
    settings: DataSettings,
    folder: Path,
    numbered: Sequence[_Numbered],
    dropped: Dropped,
    sources: Sequence[Source],
    report: Report,
) -> dict[str, Any]:
    """Write the prepared folder and return its manifest."""
    counts = {
        file_name(kind, split): count
        for kind, of_splits in _counts(numbered).items()
        for split, count in of_splits.items()
        if count
    }
    with replace_folder(folder) as partial:
        done = 0
        for kind in KINDS:
            system = any(
                has_system(shard.file, kind) for source in numbered if kind in source.placed for shard in source.shards
            )
            with ExitStack() as stack:
                writers = {
                    SPLITS.index(split): stack.enter_context(
                        row_groups(partial / file_name(kind, split), arrow_schema(kind, system=system))
                    )
                    for split in SPLITS
                    if file_name(kind, split) in counts
                }
                for source in numbered:
                    for rows, splits in _rows(source, kind, system=system) if kind in source.placed else ():
                        for split, writer in writers.items():
                            writer.add(rows.filter(pa.array(splits == split)))
                        done += rows.num_rows
                        report("write", done, sum(counts.values()))
        named = name_sources([file for source in sources for file in source.files])
        manifest: dict[str, Any] = {
            "name": settings.name,
            "format": settings.format,
            "rows": counts,
            "dropped": dropped.rows,
            "sources": {name: sha256_of(path) for name, path in named.items()},
        }
        tables = [folder / IMAGES for folder in sorted({file.parent for file in named.values()})]
        tables += [images_of_shard(shard.file) for source in numbered for shard in source.shards]
        if images := carried_images(tables, partial):
            manifest["images"] = images
        if dropped.alike:
            manifest["dropped_alike"] = dropped.alike
        if unused := sum(shard.unused for source in numbered for shard in source.shards):
            manifest["unused"] = unused
        if unread := sorted(frozenset().union(*(shard.unread for source in numbered for shard in source.shards))):
            manifest["unread"] = unread
        if any(source.split for source in sources):
            split_of = {file: source.split_shown for source in sources for file in source.files}
            manifest["splits"] = {name: split_of[path] for name, path in named.items()}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def notes_of(manifest: Mapping[str, Any]) -> list[str]:
    """Describe the facts about a preparation that a user must know: splits by file name, dropped rows.

    Args:
        manifest: manifest of a prepared data set.
    """
    notes = []
    by_split: dict[str, list[str]] = {}
    for name, split in manifest.get("splits", {}).items():
        by_split.setdefault(split, []).append(name)
    notes += [f"{split or 'split by the shares'}: {listed(names)} (by file name)" for split, names in by_split.items()]
    if dropped := manifest.get("dropped"):
        notes.append(f"{dropped} rows dropped, their prompts are held out")
    if alike := manifest.get("dropped_alike"):
        notes.append(f"{alike} of the dropped rows are equal to a held-out prompt only after normalisation")
    if unused := manifest.get("unused"):
        notes.append(f"{unused} completions are in no row: for their prompts, no other completion has another score")
    if unread := manifest.get("unread"):
        notes.append(f"columns that nothing reads: {listed(unread)}")
        if SPLIT_IF_NAMED in unread:
            notes.append("data.columns={split: split} reads the split of each row from its column 'split'")
    return notes


def _keep_only(shards: Path, settings: DataSettings) -> None:
    """Remove the shards of other settings, files or code than these; a .gitignore excludes the shards from git."""
    key = hashlib.sha256(settings.model_dump_json().encode())
    for file in (*files_of(settings.path or ()), *files_of(settings.test_path or (), "data.test_path")):
        there = file.stat()
        key.update(f"{file.absolute()} {there.st_size} {there.st_mtime_ns}\n".encode())
    for code in sorted(Path(__file__).parent.glob("*.py")):
        key.update(code.read_bytes())
    kept = shards / "key"
    if shards.is_dir() and not (kept.is_file() and kept.read_text() == key.hexdigest()):
        shutil.rmtree(shards)
    write_file(shards / ".gitignore", "*\n")
    write_file(kept, key.hexdigest())


def printed(every: int = 1_000_000) -> Report:
    """Return a report that prints a line each time `every` more rows are done."""
    shown: dict[str, int] = {}

    def report(stage: str, rows: int, of: int | None) -> None:
        if rows // every > shown.get(stage, 0):
            shown[stage] = rows // every
            print(f"{stage}: {rows:,} rows" + (f" of {of:,}" if of else ""), flush=True)

    return report


def main(arguments: list[str] | None = None) -> int:
    """Run a stage `prepare` of a dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.datasets.prepare", description=__doc__)
    parser.add_argument("params", type=Path, help="YAML file with the settings")
    parser.add_argument("section", help="its key that holds them")
    parser.add_argument("folder", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    settings = checked(DataSettings, read_section(given.params, given.section), f"{given.params}: {given.section}")
    manifest = prepare(settings, given.folder, printed())
    print(f"{given.folder}: {sum(manifest['rows'].values())} rows in {len(manifest['rows'])} files")
    for line in notes_of(manifest):
        print(f"{given.folder}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))
