"""The one prepare stage: raw files of any known format -> the prepared folder (its form stands in `schema.py`).

A prompt belongs to one split, whatever kinds of row it is in: its hash with the seed decides, unless the data say it.
Where they say two, the row of the split that is seen earlier goes (train before validation before gate), and the
manifest counts it. So no split shares a prompt with another, after normalisation. Rows that the data or `test_path`
hold out without saying for what are divided between validation and gate by the prompt's hash. The gate has problems
alone: demonstrations and preferences of its prompts are left out, and counted.

    python -m models.datasets.prepare params.yaml SECTION data/prepared/NAME

SECTION is the key of the YAML file that holds the `data:` settings. The folder appears whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from models.atomic_write import replace_folder
from models.datasets.formats import HELD_OUT, Record, read_records
from models.datasets.normalise import normalise
from models.datasets.params import checked, read_section, run_stage
from models.datasets.schema import (
    COLUMNS,
    KINDS,
    MANIFEST,
    SPLITS,
    Kind,
    Row,
    Split,
    arrow_schema,
    file_name,
    write_rows,
)
from models.datasets.settings import DataSettings
from models.errors import UserError

ID_MARK: dict[Kind, str] = {"problems": "", "demonstrations": "d", "preferences": "p"}
"""What stands before the number in a row's id, so that ids are unique in the data set: train-000123, train-d000123."""

Prepared = dict[Kind, dict[Split, list[Row]]]


def split_of(prompt: str, settings: DataSettings) -> Split:
    """The split of a prompt: a function of its normalised text, the seed, the two shares and the gate's rotation."""
    if settings.test_path or _place(f"{settings.seed}", prompt) >= settings.held_out_share:
        return "train"
    return divide_held_out(prompt, settings)


def divide_held_out(prompt: str, settings: DataSettings) -> Split:
    """The split of a held-out prompt. A rotation moves the gate on by its own width: to prompts that it had not yet,
    and, where it is more than half of what is held out, to some of its old ones."""
    start = settings.gate_rotation * settings.gate_part
    place = (_place(f"{settings.seed}/gate", prompt) - start) % 1.0
    return "gate" if place < settings.gate_part else "validation"


def _place(salt: str, prompt: str) -> float:
    """A number in [0, 1), uniform over prompts."""
    digest = hashlib.sha256(f"{salt}\n{normalise(prompt)}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def assign(records: Iterable[Record], settings: DataSettings) -> tuple[list[tuple[Split, Record]], int]:
    """Every record with its split, in order, no prompt in two of them; and how many records went for that."""
    placed = [(_placed(record, settings), record) for record in records]
    latest: dict[str, Split] = {}
    for split, record in placed:
        prompt = normalise(str(record.row["prompt"]))
        latest[prompt] = max(latest.get(prompt, split), split, key=SPLITS.index)
    kept = [
        (split, record)
        for split, record in placed
        if latest[normalise(str(record.row["prompt"]))] == split and (split != "gate" or record.kind == "problems")
    ]
    return kept, len(placed) - len(kept)


def _placed(record: Record, settings: DataSettings) -> Split:
    prompt = str(record.row["prompt"])
    if record.split == HELD_OUT:
        return divide_held_out(prompt, settings)
    return record.split or split_of(prompt, settings)


def number(placed: Sequence[tuple[Split, Record]], derived_problems: bool) -> Prepared:
    """The rows with all their columns, ids and problem ids included.

    `derived_problems` says that problems were read off demonstrations or pairs: then a prompt is one problem, however
    many rows it has. Otherwise every problem of the source is kept, so that validation can report a doubled one.
    """
    rows: Prepared = {kind: {split: [] for split in SPLITS} for kind in KINDS}
    counts = dict.fromkeys(KINDS, 0)
    problem_ids: dict[str, str] = {}
    for wanted in KINDS:  # problems come first: the other kinds refer to them
        for split, record in placed:
            if record.kind != wanted:
                continue
            prompt = normalise(str(record.row["prompt"]))
            if wanted == "problems" and derived_problems and prompt in problem_ids:
                continue
            row_id = f"{split}-{ID_MARK[wanted]}{counts[wanted]:06d}"
            counts[wanted] += 1
            if wanted == "problems":
                problem_ids.setdefault(prompt, row_id)
            known: Row = {"id": row_id, "prompt_id": problem_ids.get(prompt, ""), "level": 0, **record.row}
            rows[wanted][split].append({column: known.get(column, "") for column in COLUMNS[wanted]})
    return rows


def require_wanted_splits(rows: Prepared, settings: DataSettings) -> None:
    """Raises a UserError where a split that the shares ask for got no row of a kind that the data set has."""
    train = 1.0 if settings.test_path else 1.0 - settings.held_out_share
    shares = {"train": train, "validation": settings.validation_share, "gate": settings.gate_share}
    for kind, splits in rows.items():
        total = sum(len(rows_of_split) for rows_of_split in splits.values())
        for split, rows_of_split in splits.items():
            asked = shares[split] > 1e-9 and (split != "gate" or kind == "problems")
            if total and not rows_of_split and asked:
                raise UserError(
                    f"data set {settings.name}: the {split} split of {kind} is empty ({total} rows in all, train"
                    f" {train:g}, validation {settings.validation_share:g}, gate {settings.gate_share:g})"
                )


def prepare_rows(settings: DataSettings) -> tuple[Prepared, dict[str, Path], int]:
    """Reads and splits: the rows of every kind and split, the source files by name, how many rows were dropped.

    Raises:
        UserError: a file, column or row is not as the settings say, or a split that is asked for has no row.
    """
    if settings.path is None or settings.format is None:
        raise UserError(f"data.path: nothing to prepare for {settings.name}, no path is given")
    records, files = read_records(settings.format, settings.path, settings.columns, settings.limit)
    split_given = any(record.split for record in records)
    sources = list(files)
    if settings.test_path:
        test, files = read_records(
            settings.format, settings.test_path, settings.columns, settings.limit, key="data.test_path"
        )
        records += [Record(record.kind, record.split or HELD_OUT, record.row) for record in test]
        sources += files
    placed, dropped = assign(records, settings)
    rows = number(placed, derived_problems=settings.format not in ("problems", "kinds"))
    if not split_given:
        require_wanted_splits(rows, settings)
    return rows, name_sources(sources), dropped


def name_sources(files: Sequence[Path]) -> dict[str, Path]:
    """A short name for each file: without the folders that all share, so that the place of the data does not count."""
    parents = [file.absolute().parent for file in files]
    common = Path(os.path.commonpath(parents))
    return {file.absolute().relative_to(common).as_posix(): file for file in files}


def sha256_of(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare(settings: DataSettings, folder: Path) -> dict[str, Any]:
    """Writes the prepared data set, the manifest last, and returns the manifest. Raises as `prepare_rows` does."""
    rows, sources, dropped = prepare_rows(settings)
    with replace_folder(folder) as partial:
        counts: dict[str, int] = {}
        for kind, splits in rows.items():
            for split, rows_of_split in splits.items():
                if rows_of_split:
                    write_rows(partial / file_name(kind, split), rows_of_split, arrow_schema(kind))
                    counts[file_name(kind, split)] = len(rows_of_split)
        manifest: dict[str, Any] = {
            "name": settings.name,
            "format": settings.format,
            "rows": counts,
            "dropped": dropped,
            "sources": {name: sha256_of(path) for name, path in sources.items()},
        }
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return manifest


def main(arguments: list[str] | None = None) -> int:
    """A stage `prepare` of a dvc.yaml."""
    parser = argparse.ArgumentParser(prog="python -m models.datasets.prepare", description=__doc__)
    parser.add_argument("params", type=Path, help="YAML file with the settings")
    parser.add_argument("section", help="its key that holds them")
    parser.add_argument("folder", type=Path, help="folder to write")
    given = parser.parse_args(arguments)
    settings = checked(DataSettings, read_section(given.params, given.section), f"{given.params}: {given.section}")
    manifest = prepare(settings, given.folder)
    print(f"{given.folder}: {sum(manifest['rows'].values())} rows in {len(manifest['rows'])} files")
    if manifest["dropped"]:
        print(f"{given.folder}: {manifest['dropped']} rows dropped, their prompts are held out")
    return 0


if __name__ == "__main__":
    sys.exit(run_stage(main))
