"""Comparison of the rows that two versions or runs read; the files are found by their recorded hashes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import get_args

from models.datasets.row_diff import Mark, Place, SplitDifference, read_marks, row_differences
from models.datasets.schema import Kind, Split, file_name, table_pieces
from tasks.data.versions import fetch_by_hash
from tasks.tracking.summaries import DataLink


@dataclass(frozen=True)
class DataDifference:
    """Difference between two versions of the data."""

    before: str
    """Hash of the older prepared data; empty if none is recorded."""
    after: str
    """Hash of the newer prepared data; empty if none is recorded."""
    raw: tuple[tuple[str, str, str], ...] = ()
    """Path, older hash and newer hash of each raw file that differs; a hash is empty if that side did not read it."""
    splits: tuple[SplitDifference, ...] = ()
    """Differences of the files whose hashes differ."""
    unread: tuple[str, ...] = ()
    """Files whose rows cannot be compared, with the reason."""

    @property
    def same(self) -> bool:
        """Whether both read the same rows, as far as is known."""
        return not self.unread and all(split.same for split in self.splits)


@dataclass
class PreparedFiles:
    """The prepared files of one version, each fetched on first use."""

    root: Path
    """The repository."""
    folder: Path
    """Folder for the fetched files."""
    hashes: Mapping[Place, str]
    fetched: dict[Place, bool] = field(default_factory=dict)

    def has(self, place: Place) -> bool:
        """Fetch the file into `folder` on first use, and return whether it is available."""
        if place not in self.fetched:
            self.folder.mkdir(parents=True, exist_ok=True)
            target = self.folder / file_name(*place)
            self.fetched[place] = place in self.hashes and fetch_by_hash(self.root, self.hashes[place], target)
        return self.fetched[place]

    def marks(self, place: Place) -> list[Mark]:
        """Return the id and hashes of each row of an available file; see `models.datasets.row_diff.Mark`."""
        return list(read_marks(self.folder, *place))

    def rows(self, place: Place, ids: Collection[str]) -> dict[str, dict[str, str]]:
        """Return id -> row, with all values as text, for the rows of an available file with these ids."""
        wanted = set(ids)
        pieces = table_pieces(self.folder, *place) if wanted else ()
        return {
            str(row["id"]): {key: str(value) for key, value in row.items()}
            for piece in pieces
            for row in piece.to_pylist()
            if str(row["id"]) in wanted
        }


def place_of(source: str) -> Place | None:
    """Return the kind and split in the name of a prepared file; None for the path of any other file."""
    kind, _, split = PurePosixPath(source).stem.rpartition("_")
    if kind in get_args(Kind) and split in get_args(Split):
        return kind, split  # type: ignore[return-value]
    return None


def prepared_hashes(links: Collection[DataLink]) -> dict[Place, str]:
    """Return kind and split -> DVC's md5 of the prepared files that a flow read."""
    places = {place_of(link.source): link.digest for link in links if link.source.endswith(".parquet")}
    return {place: digest for place, digest in places.items() if place is not None}


def data_difference(
    before: Collection[DataLink], after: Collection[DataLink], old: PreparedFiles, new: PreparedFiles
) -> DataDifference:
    """Compare the data that two flows read.

    Args:
        before: data that the older flow read.
        after: data that the newer one read.
        old: the files of the older.
        new: the files of the newer.

    Raises:
        UserError: the working directory is not a clone, or a file is not part of a data set.
    """
    places = [place for place in dict.fromkeys([*old.hashes, *new.hashes]) if _differs(old, new, place)]
    unread = []
    for place in places:
        for which, files in (("older", old), ("newer", new)):
            if place in files.hashes and not files.has(place):
                unread.append(
                    f"{file_name(*place)} of the {which} ({files.hashes[place]}) is neither in DVC's cache nor in the "
                    "remote"
                )
    readable = [place for place in places if all(place not in files.hashes or files.has(place) for files in (old, new))]
    differences = row_differences(
        {place: old.marks(place) for place in readable if place in old.hashes},
        {place: new.marks(place) for place in readable if place in new.hashes},
    )
    return DataDifference(
        _whole(before), _whole(after), _raw(before, after), tuple(differences.values()), tuple(unread)
    )


def _differs(old: PreparedFiles, new: PreparedFiles, place: Place) -> bool:
    return old.hashes.get(place) != new.hashes.get(place)


def _whole(links: Collection[DataLink]) -> str:
    return next((link.digest for link in links if link.context == "prepared"), "")


def _raw(before: Collection[DataLink], after: Collection[DataLink]) -> tuple[tuple[str, str, str], ...]:
    old, new = ({link.source: link.digest for link in links if link.context == "raw"} for links in (before, after))
    return tuple(
        (path, old.get(path, ""), new.get(path, ""))
        for path in dict.fromkeys([*old, *new])
        if old.get(path) != new.get(path)
    )
