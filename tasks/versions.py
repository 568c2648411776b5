"""Versions of the data: the one place that talks to DVC.

Writing goes through the `dvc` command line of this very interpreter, reading a pinned revision through DVCFileSystem.
The built-in data set is made by the stages of the repository's dvc.yaml. A user's files get a stage of their own,

    data/sources/NAME/dvc.yaml      the raw paths as dependencies
    data/sources/NAME/params.yaml   the recipe's `data:` section as parameters
    data/prepared/NAME              its output

so that new raw bytes, other settings or another version of the reading code each make the stage run again, and nothing
else does. The data themselves stay where they are; git sees the two small files, and pins them once they are committed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import models
from models.datasets.params import ERROR_PREFIX
from models.datasets.raw import files_of
from models.datasets.settings import BUILT_IN, DataSettings
from models.errors import UserError

Report = Callable[[str], None]

STAGE = "prepare"
READING_CODE = (
    "folder", "formats", "messages", "normalise", "params", "prepare", "raw", "schema", "settings", "strict_json",
    "strict_yaml", "text_files",
)  # fmt: skip
"""Modules of models/datasets that decide what a user's files become."""
HINTS = (
    *("To track the changes", "git add ", "To enable auto staging", "dvc config core.autostage", "Use `dvc push`"),
    *("> ", "Generating lock file", "Updating lock file"),
)
"""What DVC says about the next git command and its own files; of no use to somebody who runs a recipe."""


@dataclass(frozen=True, kw_only=True)
class DataVersion:
    """A prepared data set and what pins it."""

    name: str
    folder: Path
    """The prepared folder, absolute."""
    revision: str
    """Commit of the repository; "" where there is none."""
    dirty: bool
    """Whether that commit pins other data than these, or none: then `read_pinned` at it does not give these rows."""
    digest: str
    """DVC's hash of the whole prepared folder, such as `0f3a...9c.dir`."""
    files: dict[str, str]
    """Path relative to the repository -> md5, for every file of the prepared folder."""
    raw: dict[str, str]
    """Path of the raw data -> DVC's md5 (ending in `.dir` for a folder)."""


def prepare(settings: DataSettings, root: Path, report: Report = print) -> DataVersion:
    """Brings the prepared data set up to date with `dvc repro` and says which version it is.

    Args:
        settings: the `data:` section; relative paths in it count from the working directory.
        root: the repository, which holds `.dvc`.
        report: given each line that DVC and its stages print, as they print it.

    Raises:
        UserError: what the failing stage says of the data, or the first error of DVC, in one line.
    """
    root = _repository(root)
    with _alone(root) as lock:
        if settings.built_in:
            _dvc(root, ["repro", STAGE], report, lock)
        else:
            _prepare_source(settings, root, report, lock)
        return current(settings.name, root)


def current(name: str, root: Path) -> DataVersion:
    """The version of a prepared data set as it lies there, without running anything.

    Raises:
        UserError: the data set has not been prepared.
    """
    root = _repository(root)
    folder = root / _prepared(name)
    digest = digest_of(name, root)
    if not folder.is_dir():
        raise UserError(f"{_prepared(name)}: no such folder; `dvc checkout` brings it back")
    stage = _stage_of(name, _lock_text(name, root)) or {}
    given = _raw_paths(name, root)
    committed = _stage_of(name, _git(root, "show", f"HEAD:./{_lock_path(name)}"))
    return DataVersion(
        name=name,
        folder=folder,
        revision=_git(root, "rev-parse", "HEAD").strip(),
        dirty=committed is None or _digest(name, committed) != digest,
        digest=digest,
        files={path.relative_to(root).as_posix(): _md5(path) for path in sorted(folder.glob("*.*"))},
        raw={item["path"]: item["md5"] for item in stage.get("deps", []) if item["path"] in given},
    )


def digest_of(name: str, root: Path) -> str:
    """DVC's hash of the prepared folder, as the lock file beside the stage has it. Raises UserError where none."""
    stage = _stage_of(name, _lock_text(name, _repository(root)))
    digest = _digest(name, stage) if stage else None
    if digest is None:
        raise UserError(f"{_prepared(name)}: not prepared yet, {_lock_path(name)} does not have it")
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
        content: bytes = DVCFileSystem(str(_repository(root)), rev=rev).read_bytes(path)
    except (DvcException, SCMError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} at revision {rev}: cannot be read ({reason})") from error
    return content


def push(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Copies the data to the remote (the default one unless named): of one data set or of all. Raises UserError."""
    _transfer("push", root, name, remote, report)


def pull(root: Path, name: str | None = None, remote: str | None = None, report: Report = print) -> None:
    """Brings the data that the lock files pin from the remote: of one data set or of all. Raises UserError."""
    _transfer("pull", root, name, remote, report)


def _transfer(command: str, root: Path, name: str | None, remote: str | None, report: Report) -> None:
    root = _repository(root)
    target = [] if name is None else [STAGE if name in BUILT_IN else f"{_source(name)}/dvc.yaml:{STAGE}"]
    with _alone(root) as lock:
        _dvc(root, [command, *(["--remote", remote] if remote else []), *target], report, lock)


def _prepare_source(settings: DataSettings, root: Path, report: Report, lock: int) -> None:
    """Writes the stage of a user's files and runs it; a stage that fails leaves the files as they were before."""
    if settings.name in BUILT_IN:
        raise UserError(f"data.name: '{settings.name}' is the name of a built-in data set; give yours another")
    files_of(settings.path or ())  # a missing file is said before anything is written
    files_of(settings.test_path or (), "data.test_path")
    folder = root / _source(settings.name)
    paths = (folder / "dvc.yaml", folder / "params.yaml")
    before = {path: path.read_bytes() if path.is_file() else None for path in paths}
    try:
        for path, content in zip(before, source_files(settings, root), strict=True):
            _write(path, content)
        _dvc(root, ["repro", f"{_source(settings.name)}/dvc.yaml"], report, lock)
    except BaseException:
        for path, old in before.items():
            if old is None:
                path.unlink(missing_ok=True)
            else:
                _write(path, old.decode())
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        raise


def source_files(settings: DataSettings, root: Path) -> tuple[str, str]:
    """The text of `dvc.yaml` and of `params.yaml` for a user's files; paths inside the repository become relative."""
    data: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    data["name"] = settings.name
    raw: list[str] = []
    for key, paths in (("path", settings.path), ("test_path", settings.test_path)):
        if paths:
            data[key] = [_from_root(path, root) for path in paths]
            raw += data[key]
    params = f"{_source(settings.name)}/params.yaml"
    stage = {
        "wdir": "../../..",
        "cmd": f"python -m models.datasets.prepare {params} data {_prepared(settings.name)}",
        "deps": [path.replace("${", "\\${") for path in dict.fromkeys(raw)],  # ${ would be a DVC template
        "params": [{params: ["code", "data"]}],
        "outs": [_prepared(settings.name)],
    }
    return (
        yaml.safe_dump({"stages": {STAGE: stage}}, sort_keys=False, allow_unicode=True),
        yaml.safe_dump({"code": _reading_code(), "data": data}, sort_keys=False, allow_unicode=True),
    )


def _from_root(path: Path, root: Path) -> str:
    absolute = Path(os.path.abspath(path))
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.as_posix()


def _reading_code() -> str:
    """Digest of the modules that read a user's files: a stage outside of the package cannot depend on its files."""
    folder = Path(models.__path__[0]) / "datasets"
    total = hashlib.sha256()
    for module in READING_CODE:
        total.update(module.encode() + b"\0" + (folder / f"{module}.py").read_bytes() + b"\0")
    return total.hexdigest()


def _write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(content, encoding="utf-8")
    os.replace(partial, path)


def _prepared(name: str) -> str:
    return f"data/prepared/{name}"


def _source(name: str) -> str:
    return f"data/sources/{name}"


def _lock_path(name: str) -> str:
    return "dvc.lock" if name in BUILT_IN else f"{_source(name)}/dvc.lock"


def _lock_text(name: str, root: Path) -> str:
    path = root / _lock_path(name)
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _stage_of(name: str, lock: str) -> dict[str, Any] | None:
    """The stage that prepares the data set, out of the text of a lock file."""
    stages: dict[str, Any] = (yaml.safe_load(lock) or {}).get("stages") or {}
    stage: dict[str, Any] | None = stages.get(STAGE)
    return stage


def _digest(name: str, stage: dict[str, Any]) -> str | None:
    return next((item["md5"] for item in stage.get("outs", []) if item["path"] == _prepared(name)), None)


def _raw_paths(name: str, root: Path) -> Sequence[str]:
    """The raw paths of the data set, as its settings name them."""
    built_in = name in BUILT_IN
    path = root / ("params.yaml" if built_in else f"{_source(name)}/params.yaml")
    data = (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get(STAGE if built_in else "data") or {}
    found: list[str] = []
    for key in ("path", "test_path"):
        value = data.get(key) or []
        found += [value] if isinstance(value, str) else value
    return found


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _repository(root: Path) -> Path:
    root = root.resolve()
    if not (root / ".dvc").is_dir():
        raise UserError(f"{root}: no DVC repository (no folder .dvc); run in a clone of the project")
    return root


@contextmanager
def _alone(root: Path) -> Iterator[int]:
    """Waits for other processes that prepare data here, and gives the file descriptor that keeps them waiting.

    DVC itself gives up at once where another one runs the same stage. It inherits the descriptor, so that the next run
    also waits for a DVC whose own caller was killed.
    """
    path = root / ".dvc" / "tmp" / "rewardflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _git(root: Path, *arguments: str) -> str:
    """What a git command prints; "" where it fails, as it does outside of a repository or before the first commit."""
    result = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    return result.stdout if result.returncode == 0 else ""


def _environment() -> dict[str, str]:
    """For DVC and its stages: this interpreter is `python`, the package can be imported, nothing calls home."""
    here = dict(os.environ)
    package = str(Path(models.__path__[0]).parent)
    here["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), here.get("PATH", os.defpath)])
    here["PYTHONPATH"] = os.pathsep.join(filter(None, [package, here.get("PYTHONPATH")]))
    here["PYTHONUNBUFFERED"] = "1"
    for key, value in (
        ("DVC_NO_ANALYTICS", "1"),
        ("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required"),
        ("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required"),
    ):
        here.setdefault(key, value)
    return here


def _dvc(root: Path, arguments: list[str], report: Report, lock: int) -> None:
    """Runs a DVC command, handing on its lines; a failure becomes a UserError of one line."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        cwd=root,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=[lock],
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.strip())
            failure = line.startswith((ERROR_PREFIX, "ERROR: failed to reproduce"))  # becomes the UserError
            if line.strip() and not failure and not line.strip().startswith(HINTS):
                report(line.rstrip())
    if process.returncode:
        raise UserError(_reason(arguments[0], lines, process.returncode))


def _reason(command: str, lines: list[str], status: int) -> str:
    """The one line that says why: what a stage said of the data, else DVC's first error, else the exit status."""
    for line in reversed(lines):
        if line.startswith(ERROR_PREFIX):
            return line.removeprefix(ERROR_PREFIX)
    first = next((line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")), None)
    return f"dvc {command}: {first or f'ended with exit status {status}'}"
