"""Versions of the data that DVC makes and git pins; the only module that imports DVC.

Data are written by the `dvc` command line of the running interpreter (tasks/data/dvc_command.py). A pinned revision is
read with DVCFileSystem. The stages of the repository's dvc.yaml make the built-in data sets. Each set of a user's files
has a stage of its own (tasks/data/data_sources.py).
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from models.base.errors import UserError
from models.datasets.built_in import BUILT_IN, TASK_SETS
from models.datasets.hub_reference import is_hub_reference, parse_hub_reference
from models.datasets.settings import DataSettings
from tasks.data import dvc_remote
from tasks.data.data_sources import RAW, STAGE, added_folder, prepare_source, prepared_folder, source_folder, stage_of
from tasks.data.dvc_command import Report, repository_lock, run_dvc
from tasks.data.hub_data import fetch_hub_data
from tasks.data.project_stages import update_code_digest
from tasks.host.code_version import NO_REPOSITORY, git_output, without_commit


@dataclass(frozen=True, kw_only=True)
class DataVersion:
    """A prepared data set and the revision that pins it."""

    name: str
    folder: Path
    """The prepared folder, absolute."""
    revision: str
    """Commit of the repository; "" if there is none."""
    without: str = NO_REPOSITORY
    """The reason for a missing commit."""
    dirty: bool
    """Whether the commit does not pin these data, so that `read_pinned` does not return these rows from it."""
    digest: str
    """DVC's hash of the whole prepared folder, such as `0f3a...9c.dir`."""
    files: dict[str, str]
    """Path relative to the repository -> md5, for every file of the prepared folder."""
    raw: dict[str, str]
    """Path of the raw data -> DVC's md5 (ending in `.dir` for a folder), or hub reference -> its commit."""
    raw_stored: bool
    """Whether the revision contains the raw files too; for files outside of the repository only the hash is kept. Hub
    data of a commit count as stored."""
    hub_unpinned: str = ""
    """Why hub data are not pinned: their reference names no commit. "" if all do, or if there are none."""

    @property
    def unpinned(self) -> str:
        """Why the revision does not contain these data, in a few words; "" if it does."""
        if self.hub_unpinned:
            return self.hub_unpinned
        if not self.revision:
            return f"the data {self.name} are in no commit ({self.without})"
        if self.dirty:
            cure = "commit dvc.lock" if self.name in BUILT_IN else "`rewardflow data add` pins them"
            if self.raw and all(map(is_hub_reference, self.raw)):
                cure = f"commit {source_folder(self.name)}, or `rewardflow data add` pins them"
            return f"commit {self.revision[:8]} does not hold the data {self.name} as they are; {cure}"
        if not self.raw_stored:
            return f"of the raw files of {self.name} only the hash is kept; `rewardflow data add` stores them"
        return ""


def prepare(settings: DataSettings, root: Path, report: Report = print) -> DataVersion:
    """Bring the prepared data set up to date with `dvc repro` and return its version.

    Args:
        settings: the `data:` section; relative paths in it count from the working directory.
        root: the repository, which contains `.dvc`.
        report: called with each line that DVC and its stages print, as they print it.

    Raises:
        UserError: the failing stage's message about the data, or the first error of DVC, in one line.
    """
    root = repository(root)
    settings, hub_unpinned = fetch_hub_data(settings, report)
    with repository_lock(root) as lock:
        if settings.built_in:
            update_code_digest(root)
            run_dvc(root, ["repro", stage_of(settings.name)], report, lock)
        else:
            prepare_source(settings, root, report, lock)
        return replace(current(settings.name, root), hub_unpinned=hub_unpinned)


def current(name: str, root: Path) -> DataVersion:
    """Return the current version of a prepared data set, without running anything.

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
        raw={item["path"]: item["md5"] for item in stage.get("deps", []) if item["path"] in given}
        | {path: parse_hub_reference(path).revision for path in given if is_hub_reference(path)},
        raw_stored=name in BUILT_IN or _raw_stored(stage, given, root),
    )


def digest_of(name: str, root: Path) -> str:
    """Return DVC's hash of the prepared folder from the lock file of its stage. Raise UserError if there is none."""
    stage = _stage_of(name, _lock_text(name, repository(root)))
    digest = _digest(name, stage) if stage else None
    if digest is None:
        raise UserError(f"{prepared_folder(name)}: not prepared yet, {_lock_path(name)} does not have it")
    return digest


def read_pinned(root: Path, path: str, rev: str) -> bytes:
    """Return the bytes of a data file that a git revision pins, from DVC's cache or the remote.

    Args:
        root: the repository.
        path: the file, relative to the repository.
        rev: a commit, tag or branch.

    Raises:
        UserError: the revision does not exist or does not have the file, or neither cache nor remote has its bytes.
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
    """Copy the file with DVC's hash `md5` from DVC's cache or the default remote to `target`.

    A hash pins a file whether or not a commit contains the lock file that names it.

    Returns:
        Whether one of the two has it; if not, `target` does not exist.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    with Repo(str(repository(root)), config=dvc_remote.settings()) as repo:
        for place in (lambda: repo.cache.local, repo.cloud.get_remote_odb):
            try:
                held = place()
                with held.fs.open(held.oid_to_path(md5), "rb") as source, target.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
            except (DvcException, OSError):  # no remote, or it is unreachable, or it does not have the file
                continue
            if _md5(target) == md5:
                return True
    target.unlink(missing_ok=True)
    return False


def push(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Push one data set, or all, to the DVC remote.

    Args:
        root: the repository.
        name: name of the data set.
        remote: its name in DVC's configuration; None: DATA_REMOTE, else the repository's default remote.
        report: called with each line of DVC's.

    Raises:
        UserError: the first error of DVC, in one line.
    """
    _transfer("push", root, name, remote, report)


def pull(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Pull one data set, or all, as the lock files pin them, from the DVC remote. Raise UserError on failure."""
    _transfer("pull", root, name, remote, report)


def stored(root: Path, digests: Iterable[str]) -> set[str]:
    """Return those of the given hashes of folders that the default DVC remote has.

    A remote on another machine is not queried and counts as having all: it may be unreachable, and querying it would
    delay a run that has nothing to push for minutes.

    Raises:
        UserError: the remote does not exist.
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
        raise UserError(f"the list of files of the DVC remote cannot be read ({reason})") from error


def _transfer(command: str, root: Path, name: str | None, remote: str | None, report: Report) -> None:
    root = repository(root)
    if name is None:
        target = _pinned(root) if command == "pull" else []
    else:
        target = ["--with-deps", stage_of(name)] if name in BUILT_IN else _of_a_user(name, root)
    with repository_lock(root) as lock:
        run_dvc(root, [command, *(["--remote", remote] if remote else []), *target], report, lock)


def _pinned(root: Path) -> list[str]:
    """Return everything that the repository pins: stages of lock files, and files that were added.

    A stage that was never made is left out: it is not in a lock file, and DVC would report its files as missing.
    """
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
    """Return DVC's targets for a user's data set: the stage, and the raw files if they were added."""
    pin = f"{RAW}/{name}.dvc"
    return [f"{source_folder(name)}/dvc.yaml:{STAGE}", *([pin] if (root / pin).is_file() else [])]


def _lock_path(name: str) -> str:
    return "dvc.lock" if name in BUILT_IN else f"{source_folder(name)}/dvc.lock"


def _lock_text(name: str, root: Path) -> str:
    path = root / _lock_path(name)
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _stage_of(name: str, lock: str) -> dict[str, Any] | None:
    """Return the stage that prepares the data set, from the text of a lock file."""
    stage: dict[str, Any] | None = _stages(lock).get(stage_of(name))
    return stage


@lru_cache(maxsize=4)
def _stages(text: str) -> dict[str, Any]:
    """Return the stages of a dvc.yaml or dvc.lock, by name.

    Each text is parsed once: a run reads a dvc.lock three times, and parsing the project's takes a third of a second.
    """
    stages: dict[str, Any] = (yaml.safe_load(text) or {}).get("stages") or {}
    return stages


def _digest(name: str, stage: dict[str, Any]) -> str | None:
    return next((item["md5"] for item in stage.get("outs", []) if item["path"] == prepared_folder(name)), None)


def _raw_paths(name: str, root: Path) -> Sequence[str]:
    """Return the raw paths of the data set, as its settings name them."""
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
    """Return whether the last commit contains the raw files that the stage read, by the hashes in their .dvc files; a
    commit of the hub contains its own."""
    seen = {item["path"]: item["md5"] for item in stage.get("deps", [])}
    folders = {added_folder(path) for path in given if not is_hub_reference(path)}
    for folder in folders:
        pin = yaml.safe_load(git_output(root, "show", f"HEAD:./{folder}.dvc")) if folder else None
        if not pin or [item["md5"] for item in pin.get("outs", [])] != [seen.get(folder)]:
            return False
    return bool(given)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def repository(root: Path) -> Path:
    """Return the repository `root`, resolved. Raise UserError if it is not a DVC repository."""
    root = root.resolve()
    if not (root / ".dvc").is_dir():
        raise UserError(f"{root}: no DVC repository (no folder .dvc); run in a clone of the project")
    return root
