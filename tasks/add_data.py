"""Make a user's files a version of the data that a commit holds, in one step: copy, prepare, commit, push.

data/raw/NAME           the files as they were given, in DVC's cache and remote
data/raw/NAME.dvc       their hash
data/sources/NAME       the stage that prepares them (tasks/data_sources.py)
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from models.datasets.raw import files_of
from models.datasets.settings import BUILT_IN, DataSettings
from models.errors import UserError
from tasks.code_version import git_output
from tasks.data_sources import RAW, STAGE, prepare_source, source_folder
from tasks.dvc_command import Report, alone, run_dvc
from tasks.versions import DataVersion, current, digest_of, repository


def add(settings: DataSettings, root: Path, report: Report = print) -> tuple[DataVersion, DataSettings]:
    """Make a user's files a version that a commit holds: copy them in, prepare them, commit the pins, push the bytes.

    Args:
        settings: the `data:` section with the paths of the user's files.
        root: the repository.
        report: given each line that DVC and its stages print.

    Returns:
        The version, and the section that reads it: its paths lie below data/raw/NAME.

    Raises:
        UserError: not a git repository, a file that cannot be read, git or DVC say no; what was there before stays.
    """
    root = repository(root)
    if not git_output(root, "rev-parse", "--git-dir"):
        raise UserError(f"{root}: no git repository: a version of the data is a commit (`git init` makes one)")
    if settings.path is None or settings.name in BUILT_IN:
        raise UserError(f"data.name: '{settings.name}' is the name of a built-in data set; give yours another")
    place = f"{RAW}/{settings.name}"
    given = {"": files_of(settings.path), "test": files_of(settings.test_path or (), "data.test_path")}
    kept = settings.model_copy(
        update={"path": (root / place,), "test_path": (root / place / "test",) if settings.test_path else None}
    )
    pins = [f"{place}.dvc", source_folder(settings.name)]
    with alone(root) as lock:
        with _raw_replaced(root / place, given):
            run_dvc(root, ["add", place], report, lock)
            prepare_source(kept, root, report, lock)
        _commit(root, pins, f"Data {settings.name}: {digest_of(settings.name, root).removesuffix('.dir')[:8]}")
        run_dvc(root, ["push", f"{place}.dvc", f"{source_folder(settings.name)}/dvc.yaml:{STAGE}"], report, lock)
        return current(settings.name, root), kept.model_copy(
            update={"path": (Path(place),), "test_path": (Path(place) / "test",) if settings.test_path else None}
        )


@contextmanager
def _raw_replaced(folder: Path, given: dict[str, list[Path]]) -> Iterator[None]:
    """Copies of the given files in `folder`, by subfolder; where the block fails, what was there before is back."""
    beside, before = (folder.with_name(f".{folder.name}.{state}") for state in ("partial", "before"))
    pin, pin_before = folder.with_name(f"{folder.name}.dvc"), folder.with_name(f".{folder.name}.dvc.before")
    for old in (beside, before):
        shutil.rmtree(old, ignore_errors=True)
    for inside, files in given.items():
        (beside / inside).mkdir(parents=True, exist_ok=True)
        for file in files:
            if (beside / inside / file.name).exists():
                raise UserError(f"data: two files are called {file.name}; they would lie in one folder, rename one")
            shutil.copy2(file, beside / inside / file.name)
    if not given["test"]:
        (beside / "test").rmdir()
    try:
        if folder.exists():
            os.replace(folder, before)
        if pin.exists():
            shutil.copy2(pin, pin_before)
        os.replace(beside, folder)
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        pin.unlink(missing_ok=True)
        if before.exists():
            os.replace(before, folder)
        if pin_before.exists():
            os.replace(pin_before, pin)
        raise
    finally:
        for old in (beside, before):
            shutil.rmtree(old, ignore_errors=True)
        pin_before.unlink(missing_ok=True)


def _commit(root: Path, paths: Sequence[str], message: str) -> None:
    """Commits these paths and nothing else, where they differ from the last commit. Raises UserError: what git says."""
    for arguments in (["add", "--", *paths], ["commit", "--quiet", "--message", message, "--", *paths]):
        if arguments[0] == "commit" and not git_output(root, "status", "--porcelain", "--", *paths):
            return
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            raise UserError(f"git {arguments[0]}: {said[0]}")
