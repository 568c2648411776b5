"""Comparison of two model versions or runs: code, data, recipe, packages, machine, metrics, answers.

Everything is read from the tracking store and, by hash, from DVC's cache or remote; nothing is run or changed. Unknown
values are reported and left out. The gate's problems are for the verdict alone: only the ids of their rows are shown,
and their answers are not stored.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks.data.data_difference import DataDifference, PreparedFiles, data_difference, prepared_hashes
from tasks.host.code_version import FILES, FOLDERS, ask_git
from tasks.host.machine import MACHINE, PACKAGES, read_machine, read_packages
from tasks.registered.evaluation_difference import EvaluationDifference, evaluation_difference
from tasks.tracking import tags
from tasks.tracking.recorded import VersionRecord, read_text


@dataclass(frozen=True)
class SettingDifference:
    """A setting, package or fact whose value differs; a missing value is empty."""

    name: str
    before: str
    after: str


@dataclass(frozen=True)
class CodeDifference:
    """Difference of the code."""

    before: str
    """Commit, followed by "-dirty" if it does not contain all of the code."""
    after: str
    ahead: int | None = None
    """Commits that only the newer has; None if this clone does not have both."""
    behind: int | None = None
    """Commits that only the older has; None if this clone does not have both."""
    files: tuple[str, ...] = ()
    """Files of the project that differ between the two commits."""


@dataclass(frozen=True)
class Difference:
    """All differences."""

    before: str
    """Label of the older."""
    after: str
    code: CodeDifference
    data: DataDifference
    recipe: tuple[SettingDifference, ...]
    packages: tuple[SettingDifference, ...]
    machine: tuple[SettingDifference, ...]
    evaluation: EvaluationDifference
    notes: tuple[str, ...]
    """Packages and facts of the machine that could not be compared, each with the reason."""


def difference(before: VersionRecord, after: VersionRecord, root: Path) -> Difference:
    """Compare `after` with `before`.

    Args:
        before: the older.
        after: the newer.
        root: the repository, whose DVC finds the data.

    Raises:
        UserError: the working directory is not a clone although data differ, or a record is broken.
    """
    notes: list[str] = []

    def compare_file(label: str, path: str, read: Callable[[str], dict[str, str]]) -> tuple[SettingDifference, ...]:
        old, new = read(read_text(before.trained_in, path)), read(read_text(after.trained_in, path))
        for side, facts in ((before, old), (after, new)):
            if not facts:
                notes.append(f"the {label} of {side.label} is not on record")
        return differing(old, new) if old and new else ()

    with tempfile.TemporaryDirectory() as scratch:
        old_files = PreparedFiles(root, Path(scratch) / "old", prepared_hashes(before.data))
        new_files = PreparedFiles(root, Path(scratch) / "new", prepared_hashes(after.data))
        return Difference(
            before=before.label,
            after=after.label,
            code=code_difference(before.facts.get(tags.GIT_COMMIT, ""), after.facts.get(tags.GIT_COMMIT, ""), root),
            data=data_difference(before.data, after.data, old_files, new_files),
            recipe=differing(before.params, after.params),
            packages=compare_file("list of packages", PACKAGES, read_packages),
            machine=compare_file("machine", MACHINE, read_machine),
            evaluation=evaluation_difference(before, after, old_files, new_files),
            notes=tuple(notes),
        )


def as_json(result: Difference) -> str:
    """Return the whole difference as JSON, without truncation."""
    return json.dumps(asdict(result), indent=1, ensure_ascii=False)


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[SettingDifference, ...]:
    """Return the differences of two mappings: keys with different values, or in one of them only, sorted."""
    return tuple(
        SettingDifference(name, before.get(name, ""), after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def code_difference(before: str, after: str, root: Path) -> CodeDifference:
    """Compare two recorded commits in the repository `root`."""
    old, new = (name.removesuffix("-dirty") for name in (before, after))
    counts, failure = ask_git(root, "rev-list", "--left-right", "--count", f"{old}...{new}", "--")
    if failure or not old or not new:
        return CodeDifference(before, after)
    behind, ahead = (int(number) for number in counts.split())
    listing, _ = ask_git(root, "diff", "--name-only", "-z", old, new, "--", *FOLDERS, *FILES)
    return CodeDifference(before, after, ahead, behind, tuple(filter(None, listing.split("\0"))))
