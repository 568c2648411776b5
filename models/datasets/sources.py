"""The sources of a data set: its files, grouped by kind and by the split that their names state.

File names count if `data.path` has files of a held-out split and others: `train-*.parquet`, `validation-*.parquet` and
`test-*.parquet` of one folder. Files that are all of one split, such as `test.jsonl` alone, are divided by the shares.

    train               train
    validation          validation; divided between validation and gate without test files
    test                gate; divided between validation and gate without validation files
    data.test_path      like test
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.base.errors import UserError, listed
from models.datasets.data_files import DataFile, NamedSplit, data_files
from models.datasets.formats import FORMATS, HELD_OUT, SPLIT_IF_NAMED, GivenSplit
from models.datasets.schema import KINDS, Kind
from models.datasets.settings import DataSettings

NAMED: tuple[NamedSplit, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Source:
    """Files that are read as one: they share one format, one set of columns and one split."""

    format: str
    """A key of FORMATS."""
    files: tuple[Path, ...]
    mapping: Mapping[str, str]
    """Field -> column, for the fields that the settings name."""
    kinds: tuple[Kind, ...]
    """Kinds that its rows become; other kinds of the format are left out."""
    split_named: bool
    """Whether a column `split` is used."""
    split: GivenSplit = None
    """Split that the file names give its rows; None if they give none."""
    held_out: bool = False
    """Whether the files are those of `data.test_path`."""

    @property
    def split_shown(self) -> str:
        """The split of its rows in words, if the file names or `data.test_path` give it; "" otherwise."""
        return "validation and gate" if self.split_of(None, "") == HELD_OUT else self.split or ""

    def split_of(self, given: GivenSplit, place: str) -> GivenSplit:
        """Return the split of a row.

        Args:
            given: the row's own column `split`, if it is used.
            place: place of the row, for the error message.

        Raises:
            UserError: the file name and the row's column disagree on whether the row is held out.
        """
        if given and self.split and (given == "train") != (self.split == "train"):
            raise UserError(
                f"{place}: column '{SPLIT_IF_NAMED}' says {given} in a file that is named as {self.split}; correct one"
            )
        return given or self.split or (HELD_OUT if self.held_out else None)


@dataclass(frozen=True)
class _Group:
    files: Sequence[DataFile]
    split: GivenSplit = None
    held_out: bool = False


def sources_of(settings: DataSettings) -> list[Source]:
    """Return the sources of a data set, those of `data.test_path` last.

    Raises:
        UserError: a file is missing, of an unknown type or named twice; split names do not decide every file; a folder
            of `kinds` has none of their files.
    """
    if settings.path is None or settings.format is None:
        raise UserError(f"data.path: nothing to prepare for {settings.name}, no path is given")
    sources: list[Source] = []
    for group in _groups(settings):
        files = tuple(file.path for file in group.files)
        if settings.format != "kinds":
            kinds, named = FORMATS[settings.format].kinds, SPLIT_IF_NAMED in settings.columns
            sources.append(Source(settings.format, files, settings.columns, kinds, named, group.split, group.held_out))
            continue
        for kind in KINDS:
            of_kind = tuple(file for file in files if is_of_kind(file, kind))
            if of_kind:
                sources.append(Source(kind, of_kind, {}, (kind,), True, group.split, group.held_out))
    return sources


def is_of_kind(file: Path, kind: Kind) -> bool:
    """Return whether a file of the format `kinds` holds rows of a kind, according to its name."""
    return file.stem == kind or file.stem.startswith((f"{kind}_", f"{kind}-"))


def _groups(settings: DataSettings) -> list[_Group]:
    """Return the files, grouped by the split that their names give them."""
    files, held_out = _files(settings)
    own, tested = _named(files, "data.path"), _named(held_out, "data.test_path")
    if "train" in tested:
        raise _not_held_out("data.test_path", held_out, "its files are held out")
    if settings.held_out_share >= 1.0:
        if "train" in own:
            raise _not_held_out("data.path", files, "all rows of this set are held out")
        own = {}
    elif own and "train" not in own:
        raise UserError(
            f"data.path: files are named as {listed(sorted(own))}, none as train; name the files to train on"
        )
    gives = _splits_given({*own, *tested, *(("test",) if held_out and not tested else ())})
    if HELD_OUT in (gives[name] for name in own) and settings.held_out_share == 0.0:
        raise UserError("data: validation_share and gate_share divide the held-out files, and both are 0")
    groups = [_Group(own[name], gives[name]) for name in NAMED if name in own] or [_Group(files)]
    if tested:
        groups += [_Group(tested[name], gives[name], held_out=True) for name in NAMED if name in tested]
    elif held_out:
        # without validation files, a column of the rows may still give the split
        split = None if gives["test"] == HELD_OUT else gives["test"]
        groups.append(_Group(held_out, split, held_out=True))
    return groups


def _files(settings: DataSettings) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files of `data.path` and of `data.test_path`; a file in both is held out."""
    held_out = data_files(settings.test_path or (), "data.test_path")
    apart = {file.path.resolve() for file in held_out}
    files = [file for file in data_files(settings.path or ()) if file.path.resolve() not in apart]
    if not files:
        raise UserError("data.path: all of its files are named in data.test_path too, and none is left to train on")
    if settings.format == "kinds":  # other files of the folder are not read
        files, held_out = _of_kinds(files), _of_kinds(held_out)
    for paths, chosen, key in ((settings.path, files, "data.path"), (settings.test_path, held_out, "data.test_path")):
        if paths and not chosen:
            places = ", ".join(map(str, paths))
            raise UserError(f"{key}: {places} has no file problems.*, demonstrations.* or preferences.*")
    return files, held_out


def _of_kinds(files: Sequence[DataFile]) -> list[DataFile]:
    return [file for file in files if any(is_of_kind(file.path, kind) for kind in KINDS)]


def _not_held_out(key: str, files: Sequence[DataFile], why: str) -> UserError:
    file = next(file.path for file in files if file.split == "train")
    return UserError(f"{key}: {file} is named as a file to train on, and {why}; name the held-out files only")


def _splits_given(named: set[NamedSplit]) -> dict[NamedSplit, GivenSplit]:
    """Return named split -> the split of its rows, if the file names state exactly the splits `named`."""
    whole = {"validation", "test"} <= named
    return {"train": "train", "validation": "validation" if whole else HELD_OUT, "test": "gate" if whole else HELD_OUT}


def _named(files: Sequence[DataFile], key: str) -> dict[NamedSplit, list[DataFile]]:
    """Return named split -> its files; empty if the names do not separate a held-out split.

    Raises:
        UserError: some files are named after a held-out split, and others after none or several.
    """
    by_name: dict[NamedSplit | None, list[DataFile]] = {}
    for file in files:
        by_name.setdefault(file.split, []).append(file)
    if len(by_name) == 1 or set(by_name) == {"train", None}:
        return {}
    if None in by_name:
        apart = next(name for name in by_name if name not in ("train", None))
        raise UserError(
            f"{key}: {by_name[apart][0].path} is named as {apart}, and {by_name[None][0].path} as no split or as two; "
            "rename it (train, validation or test), or name the held-out files in data.test_path"
        )
    return {name: of_name for name, of_name in by_name.items() if name is not None}
