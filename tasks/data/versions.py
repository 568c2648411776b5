"""Versions of the data: the one place that talks to DVC.

Writing goes through the `dvc` command line of this very interpreter (tasks/data/dvc_command.py), reading a pinned revision
through DVCFileSystem. The built-in data set is made by the stages of the repository's dvc.yaml, a user's files by a
stage of their own (tasks/data/data_sources.py).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from models.datasets.built_in import BUILT_IN, TASK_SETS
from models.datasets.settings import DataSettings
from models.errors import UserError
from tasks.data import dvc_remote
from tasks.host.code_version import NO_REPOSITORY, git_output, without_commit
from tasks.data.data_sources import RAW, STAGE, added_folder, prepare_source, prepared_folder, source_folder, stage_of
from tasks.data.dvc_command import Report, alone, run_dvc


@dataclass(frozen=True, kw_only=True)
class DataVersion:
    """A prepared data set and what pins it."""

    name: str
    folder: Path
    """The prepared folder, absolute."""
    revision: str
    """Commit of the repository; "" where there is none."""
    without: str = NO_REPOSITORY
    """The reason for a missing commit."""
    dirty: bool
    """Whether that commit pins other data than these, or none: then `read_pinned` at it does not give these rows."""
    digest: str
    """DVC's hash of the whole prepared folder, such as `0f3a...9c.dir`."""
    files: dict[str, str]
    """Path relative to the repository -> md5, for every file of the prepared folder."""
    raw: dict[str, str]
    """Path of the raw data -> DVC's md5 (ending in `.dir` for a folder)."""
    raw_stored: bool
    """Whether the revision holds the raw files too; of those outside of the repository only the hash is kept."""

    @property
    def unpinned(self) -> str:
        """Why the revision does not hold these data, in a few words; "" where it does."""
        if not self.revision:
            return f"the data {self.name} are in no commit ({self.without})"
        if self.dirty:
            cure = "commit dvc.lock" if self.name in BUILT_IN else "`rewardflow data add` pins them"
            return f"commit {self.revision[:8]} does not hold the data {self.name} as they are; {cure}"
        if not self.raw_stored:
            return f"of the raw files of {self.name} only the hash is kept; `rewardflow data add` stores them"
        return ""


def prepare(settings: DataSettings, root: Path, report: Report = print) -> DataVersion:
    """Brings the prepared data set up to date with `dvc repro` and says which version it is.

    Args:
        settings: the `data:` section; relative paths in it count from the working directory.
        root: the repository, which holds `.dvc`.
        report: given each line that DVC and its stages print, as they print it.

    Raises:
        UserError: what the failing stage says of the data, or the first error of DVC, in one line.
    """
    root = repository(root)
    with alone(root) as lock:
        if settings.built_in:
            run_dvc(root, ["repro", stage_of(settings.name)], report, lock)
        else:
            prepare_source(settings, root, report, lock)
        return current(settings.name, root)


def current(name: str, root: Path) -> DataVersion:
    """The version of a prepared data set as it lies there, without running anything.

    Raises:
        UserError: the data set has not been prepared.
    """
    root = repository(root)
    folder = root / prepared_folder(name)
    digest = digest_of(name, root)
    if not folder.is_dir():
        raise UserError(f"{prepared_folder(name)}: no such folder; `dvc checkout` brings it back")
    stage = _stage_of(name, _lock_text(name, root)) or {}
    given = _raw_paths(name, root)
    revision = git_output(root, "rev-parse", "--verify", "--quiet", "HEAD").strip()
    committed = _stage_of(name, git_output(root, "show", f"HEAD:./{_lock_path(name)}"))
    return DataVersion(
        name=name,
        folder=folder,
        revision=revision,
        without="" if revision else without_commit(root),
        dirty=committed is None or _digest(name, committed) != digest,
        digest=digest,
        files={path.relative_to(root).as_posix(): _md5(path) for path in sorted(folder.glob("*.*"))},
        raw={item["path"]: item["md5"] for item in stage.get("deps", []) if item["path"] in given},
        raw_stored=name in BUILT_IN or _raw_stored(stage, given, root),
    )


def digest_of(name: str, root: Path) -> str:
    """DVC's hash of the prepared folder, as the lock file beside the stage has it. Raises UserError where none."""
    stage = _stage_of(name, _lock_text(name, repository(root)))
    digest = _digest(name, stage) if stage else None
    if digest is None:
        raise UserError(f"{prepared_folder(name)}: not prepared yet, {_lock_path(name)} does not have it")
    return digest


def read_pinned(root: Path, path: str, rev: str) -> bytes:
    """The bytes of a file of the data as a revision of the repository pins it, from DVC's cache or the remote.

    Args:
        root: the repository.
        path: the file, relative to the repository.
        rev: a commit, tag or branch.

    Raises:
        UserError: no such revision, the revision does not have the file, or neither cache nor remote has its bytes.
    """
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from dvc.scm import SCMError

    try:
        content: bytes = DVCFileSystem(str(repository(root)), rev=rev, config=dvc_remote.settings()).read_bytes(path)
    except (DvcException, SCMError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} at revision {rev}: cannot be read ({reason})") from error
    return content


def fetch_by_hash(root: Path, md5: str, target: Path) -> bool:
    """Write a file of the data, known by DVC's hash, to `target`: from DVC's cache or the default remote.

    A hash pins a file whether or not a commit holds the lock that names it.

    Returns:
        Whether one of the two has it; `target` is not there where none does.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    with Repo(str(repository(root)), config=dvc_remote.settings()) as repo:
        for place in (lambda: repo.cache.local, repo.cloud.get_remote_odb):
            try:
                held = place()
                with held.fs.open(held.oid_to_path(md5), "rb") as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            except (DvcException, OSError):  # no remote, or it is away, or it does not have the file
                continue
            if _md5(target) == md5:
                return True
    target.unlink(missing_ok=True)
    return False


def push(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Copies the data to the remote: of one data set or of all.

    Args:
        root: the repository.
        name: of the data set.
        remote: its name in DVC's configuration; DATA_REMOTE, else the repository's default one, where it is None.
        report: given each line of DVC's.

    Raises:
        UserError: the first error of DVC, in one line.
    """
    _transfer("push", root, name, remote, report)


def pull(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Brings the data that the lock files pin from the remote: of one data set or of all. Raises UserError."""
    _transfer("pull", root, name, remote, report)


def stored(root: Path, digests: Iterable[str]) -> set[str]:
    """Which of these folders, by DVC's hashes, the default remote has.

    A remote on another machine is not asked and counts as having all: it may be away, and asking it would hold up a run
    that has nothing to push for minutes.

    Raises:
        UserError: there is no such remote.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(repository(root)), config=dvc_remote.settings()) as repo:
            remote = repo.cloud.get_remote_odb()
            here = remote.fs.protocol == "local"
            return {digest for digest in digests if not here or remote.exists(digest)}
    except (DvcException, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"the DVC remote cannot be asked what it has ({reason})") from error


def _transfer(command: str, root: Path, name: str | None, remote: str | None, report: Report) -> None:
    root = repository(root)
    if name is None:
        target = _pinned(root) if command == "pull" else []
    else:
        target = ["--with-deps", stage_of(name)] if name in BUILT_IN else _of_a_user(name, root)
    with alone(root) as lock:
        run_dvc(root, [command, *(["--remote", remote] if remote else []), *target], report, lock)


def _pinned(root: Path) -> list[str]:
    """What the repository pins, wherever that is: stages of lock files, and files that were added. A stage that was
    never made is in no lock file, and DVC would say of it that its files are missing."""
    listed = git_output(
        root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.dvc", "*dvc.lock"
    )
    targets: list[str] = []
    for path in sorted(set(listed.split("\0")) - {""}):
        pin, stages = root / path, Path(path).with_name("dvc.yaml")
        if pin.suffix == ".dvc" and pin.is_file():
            targets.append(path)
        elif pin.name == "dvc.lock" and pin.is_file() and (root / stages).is_file():
            made, known = (_stages((root / file).read_text(encoding="utf-8")) for file in (path, stages))
            targets += [f"{stages}:{stage}" for stage in made if stage.partition("@")[0] in known]
    return targets


def _of_a_user(name: str, root: Path) -> list[str]:
    """What DVC knows of a user's data set: the stage, and the raw files where they were added."""
    pin = f"{RAW}/{name}.dvc"
    return [f"{source_folder(name)}/dvc.yaml:{STAGE}", *([pin] if (root / pin).is_file() else [])]


def _lock_path(name: str) -> str:
    return "dvc.lock" if name in BUILT_IN else f"{source_folder(name)}/dvc.lock"


def _lock_text(name: str, root: Path) -> str:
    path = root / _lock_path(name)
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _stage_of(name: str, lock: str) -> dict[str, Any] | None:
    """The stage that prepares the data set, out of the text of a lock file."""
    stage: dict[str, Any] | None = _stages(lock).get(stage_of(name))
    return stage


@lru_cache(maxsize=4)
def _stages(text: str) -> dict[str, Any]:
    """The stages of a dvc.yaml or dvc.lock, by name. Each text is parsed once: a run reads a dvc.lock three times,
    and parsing the project's takes a third of a second."""
    stages: dict[str, Any] = (yaml.safe_load(text) or {}).get("stages") or {}
    return stages


def _digest(name: str, stage: dict[str, Any]) -> str | None:
    return next((item["md5"] for item in stage.get("outs", []) if item["path"] == prepared_folder(name)), None)


def _raw_paths(name: str, root: Path) -> Sequence[str]:
    """The raw paths of the data set, as its settings name them."""
    built_in = name in BUILT_IN
    path = root / ("params.yaml" if built_in else f"{source_folder(name)}/params.yaml")
    section = ("prepare" if name not in TASK_SETS else f"prepare_{name}") if built_in else "data"
    data = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get(section) or {}
    lines: list[str] = []
    for key in ("path", "test_path"):
        value = data.get(key) or []
        lines += [value] if isinstance(value, str) else value
    return lines


def _raw_stored(stage: dict[str, Any], given: Sequence[str], root: Path) -> bool:
    """Whether the last commit holds the raw files that the stage read: their .dvc files have the hashes it saw."""
    seen = {item["path"]: item["md5"] for item in stage.get("deps", [])}
    folders = {added_folder(path) for path in given}
    for folder in folders:
        pin = yaml.safe_load(git_output(root, "show", f"HEAD:./{folder}.dvc")) if folder else None
        if not pin or [item["md5"] for item in pin.get("outs", [])] != [seen.get(folder)]:
            return False
    return bool(folders)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def repository(root: Path) -> Path:
    """The repository `root`, resolved. Raises UserError where it is none of DVC's."""
    root = root.resolve()
    if not (root / ".dvc").is_dir():
        raise UserError(f"{root}: no DVC repository (no folder .dvc); run in a clone of the project")
    return root
