"""The data files that the paths of a recipe name, and the split that a file name states.

A split is stated by a word of the file name or by a folder: `train-00000-of-00001.parquet`, `gsm8k_test.jsonl`,
`dev.csv`, `data/validation-0.parquet`, `test/part-0.jsonl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from models.base.errors import UserError, listed
from models.datasets.hub_reference import DataPath, is_hub_reference, parse_hub_reference
from models.datasets.text_files import require_data_file

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
HUB_METADATA = ("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")
"""Files of a downloaded data set that contain no rows."""
PLAIN_FOLDERS = ("data", "default")
"""Folders of a downloaded data set that are searched for files, in addition to folders named after a split."""
SHARD_NUMBER = re.compile(r"[-_.]?\d+[-_]of[-_]\d+$")

NamedSplit = Literal["train", "validation", "test"]
SPLIT_WORDS: dict[str, NamedSplit] = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "development": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
    "heldout": "test",
    "holdout": "test",
}
"""Words of a file or folder name that state a split; `trainset`, `test_split` and the like count too."""


@dataclass(frozen=True)
class DataFile:
    """A file of a known type."""

    path: Path
    name: str
    """Path relative to the given folder, with `/`. It includes the given folder if that is named after a split."""

    @property
    def split(self) -> NamedSplit | None:
        """The split that the name states; None if it states none, or more than one."""
        place = PurePosixPath(self.name)
        stated = _splits_in(place.stem).union(*(_splits_in(folder, whole=True) for folder in place.parts[:-1]))
        return stated.pop() if len(stated) == 1 else None

    @property
    def content(self) -> tuple[str, ...]:
        """The name without suffix, shard number and plain folders: equal for two formats of the same rows, and for the
        shards of one file."""
        *folders, name = PurePosixPath(self.name).parts
        stem = SHARD_NUMBER.sub("", PurePosixPath(name).stem)
        return (*(folder for folder in folders if folder not in PLAIN_FOLDERS), stem)

    def is_shard_beside(self, other: DataFile) -> bool:
        """Return whether this and another file of the same content are shards of it."""
        numbered = all(SHARD_NUMBER.search(PurePosixPath(file.name).stem) for file in (self, other))
        return numbered and self.path.suffix.lower() == other.path.suffix.lower()


def data_files(paths: Iterable[DataPath], key: str = "data.path") -> list[DataFile]:
    """Find the data files of the given paths: files as given, and the files of a known type in folders, sorted by name.

    Subfolders are searched if they are named after a split or are one of `PLAIN_FOLDERS`, as in downloaded data sets. A
    hub reference is the folder in which its rows are stored.

    Raises:
        UserError: a path does not exist, a folder has no data file, a file is of an unknown type, is named twice,
            two files hold the same rows according to their names, or the rows of a hub reference are not stored here.
    """
    files: list[DataFile] = []
    for given in paths:
        path = _hub_folder(given, key) if is_hub_reference(given) else Path(given)
        if require_data_file(path, SUFFIXES, key):
            files.append(DataFile(path, path.name))
            continue
        inside = list(_inside(path, f"{path.name}/" if _splits_in(path.name, whole=True) else ""))
        if not inside:
            folders = sorted(folder.name for folder in path.iterdir() if folder.is_dir() and folder.name[0] != ".")
            raise UserError(
                f"{key}: the folder {path} has no {', '.join(SUFFIXES)} file"
                + (f"; name one of its folders: {listed(folders)}" if folders else "")
            )
        _refuse_repeated(inside, key)
        files += inside
    places: dict[Path, DataFile] = {}
    for file in files:
        first = places.setdefault(file.path.resolve(), file)
        if first is not file:
            same = "" if first.path == file.path else f" (as {first.path})"
            raise UserError(f"{key}: the file {file.path} is named twice{same}; its rows would be read twice")
    for parent in dict.fromkeys(file.path.parent for file in files):
        _refuse_repeated([file for file in files if file.path.parent == parent], key)
    return files


def files_of(paths: Iterable[DataPath], key: str = "data.path") -> list[Path]:
    """Return the paths of the files that `data_files` finds, without those of hub data that are not stored here yet;
    raises the same errors for the others."""
    stored = [path for path in paths if not is_hub_reference(path) or parse_hub_reference(path).folder.is_dir()]
    return [file.path for file in data_files(stored, key)]


def _hub_folder(path: DataPath, key: str) -> Path:
    """Return the folder of the rows of a hub reference."""
    reference = parse_hub_reference(path)
    if not reference.is_pinned or not reference.folder.is_dir():
        raise UserError(f"{key}: the rows of {reference} are not stored here; `rewardflow data inspect` fetches them")
    return reference.folder


def _inside(folder: Path, prefix: str) -> Iterator[DataFile]:
    entries = sorted(folder.iterdir())
    for entry in entries:
        if entry.suffix.lower() in SUFFIXES and entry.name not in HUB_METADATA and entry.is_file():
            yield DataFile(entry, prefix + entry.name)
    for entry in entries:
        if (entry.name in PLAIN_FOLDERS or _splits_in(entry.name, whole=True)) and entry.is_dir():
            yield from _inside(entry, f"{prefix}{entry.name}/")


def _refuse_repeated(files: Sequence[DataFile], key: str) -> None:
    known: dict[tuple[str, ...], DataFile] = {}
    for file in files:
        other = known.setdefault(file.content, file)
        if other is not file and not file.is_shard_beside(other):
            raise UserError(
                f"{key}: {other.path} and {file.path} hold the same rows by their names, and rows would be read twice; "
                f"name one of them in {key}, or rename one"
            )


def _splits_in(name: str, *, whole: bool = False) -> set[NamedSplit]:
    """Return the splits that a name states.

    Args:
        name: name of a file, without its suffix, or of a folder.
        whole: whether the name must be a single word that states a split, as for a folder.
    """
    words = re.findall("[a-z]+", name.casefold())
    words = [word.removesuffix("set").removesuffix("split") if word not in SPLIT_WORDS else word for word in words]
    words = [word for word in words if word]
    if whole and len(words) != 1:
        return set()
    return {SPLIT_WORDS[word] for word in words if word in SPLIT_WORDS}
