"""Adding a user's files as a version of the data that a git commit pins: copy, prepare, commit, push.

data/raw/NAME           the given files, in DVC's cache and remote
data/raw/NAME.dvc       their hash
data/sources/NAME       the stage that prepares them (tasks/data/data_sources.py)
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from models.base.disk import needs_space
from models.base.errors import UserError
from models.datasets.built_in import BUILT_IN
from models.datasets.data_files import DataFile, data_files
from models.datasets.settings import DataSettings
from tasks.data.data_sources import RAW, STAGE, prepare_source, prepared_folder, source_folder
from tasks.data.dvc_command import Report, repository_lock, run_dvc
from tasks.data.hub_data import fetch_hub_data
from tasks.data.versions import DataVersion, current, digest_of, repository
from tasks.host.code_version import NO_REPOSITORY, ask_git, git_output, without_commit


def add(settings: DataSettings, root: Path, report: Report = print) -> tuple[DataVersion, DataSettings]:
    """Add a user's files as a version of the data: copy and prepare them, commit their hashes, and push the bytes.

    Args:
        settings: the `data:` section with the paths of the user's files.
        root: the repository.
        report: called with each line that DVC and its stages print.

    Returns:
        The version, and the section that reads it: its paths are below data/raw/NAME.

    Raises:
        UserError: not a git repository, a file cannot be read, or git or DVC fails; the previous state is restored.
    """
    root = repository(root)
    if not git_output(root, "rev-parse", "--git-dir"):
        why = without_commit(root)
        mend = " (`git init` makes one)" if why == NO_REPOSITORY else ""
        raise UserError(f"{root}: {why}: a version of the data is a commit{mend}")
    if settings.path is None or settings.name in BUILT_IN:
        raise UserError(f"data.name: '{settings.name}' is the name of a built-in data set; give yours another")
    settings, _ = fetch_hub_data(settings, report)
    assert settings.path is not None, "it was given"
    place = f"{RAW}/{settings.name}"
    held_out = data_files(settings.test_path or (), "data.test_path")
    apart = {file.path.resolve() for file in held_out}
    given = {"": [file for file in data_files(settings.path) if file.path.resolve() not in apart], "test": held_out}
    kept = settings.model_copy(
        update={"path": (root / place,), "test_path": (root / place / "test",) if settings.test_path else None}
    )
    pins = [f"{place}.dvc", source_folder(settings.name)]
    with repository_lock(root) as lock:
        with needs_space(root / place), _raw_replaced(root, settings.name, given):
            run_dvc(root, ["add", place], report, lock)
            prepare_source(kept, root, report, lock)
            _commit(root, pins, f"Data {settings.name}: {digest_of(settings.name, root).removesuffix('.dir')[:8]}")
        run_dvc(root, ["push", f"{place}.dvc", f"{source_folder(settings.name)}/dvc.yaml:{STAGE}"], report, lock)
        return current(settings.name, root), kept.model_copy(
            update={"path": (Path(place),), "test_path": (Path(place) / "test",) if settings.test_path else None}
        )


@contextmanager
def _raw_replaced(root: Path, name: str, given: dict[str, list[DataFile]]) -> Iterator[None]:
    """Copy the given files (subfolder -> files) to `data/raw/NAME`; if the block fails, restore the previous state."""
    raw, source, prepared = root / RAW, root / source_folder(name), root / prepared_folder(name)
    partial_folder = raw / f".{name}.partial"
    written = [raw / f"{name}.dvc", *(source / file for file in ("dvc.yaml", "params.yaml", "dvc.lock"))]
    ignored = [raw / ".gitignore", prepared.parent / ".gitignore"]  # DVC writes its outputs' names there
    shutil.rmtree(partial_folder, ignore_errors=True)
    try:
        for inside, files in given.items():
            if files:
                _copy(files, partial_folder / inside)
        with _restored([raw / name, prepared], [*written, *ignored], raw / f".{name}.pins.before"):
            os.replace(partial_folder, raw / name)
            yield
    finally:
        shutil.rmtree(partial_folder, ignore_errors=True)
        with suppress(OSError):  # it holds something, or is not there
            source.rmdir()


def _copy(files: Sequence[DataFile], folder: Path) -> None:
    """Copy files under their names, with the folders that state their splits."""
    for file in files:
        copy = folder / file.name
        if copy.exists():
            raise UserError(f"data: two files are called {file.name}; they would lie in one folder, rename one")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file.path, copy)


@contextmanager
def _restored(folders: Sequence[Path], files: Sequence[Path], before: Path) -> Iterator[None]:
    """Move `folders` away and keep copies of `files`; if the block fails, restore all of them.

    The copies are complete before anything changes, and restoring only renames: it also works on a full disk.

    Args:
        before: folder of the copies during the block; moved folders stay next to their original path.
    """
    kept = {path: before / str(number) for number, path in enumerate(files)}
    kept |= {path: path.with_name(f".{path.name}.before") for path in folders}
    temporary = (before, *(kept[path] for path in folders))
    for old in temporary:
        shutil.rmtree(old, ignore_errors=True)
    before.mkdir()
    there = {path for path in kept if path.exists()}
    try:
        for path in there.intersection(files):
            shutil.copy2(path, kept[path])
        try:
            for path in there.intersection(folders):
                os.replace(path, kept[path])
            yield
        except BaseException:
            for path, copy in kept.items():
                if copy.exists() or path not in there:
                    _remove(path)
                if copy.exists():
                    os.replace(copy, path)
            raise
    finally:
        for old in temporary:
            shutil.rmtree(old, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _commit(root: Path, paths: Sequence[str], message: str) -> None:
    """Commit these paths and nothing else, if they differ from the last commit. Raise UserError with git's message."""
    for arguments in (["add", "--", *paths], ["commit", "--quiet", "--message", message, "--", *paths]):
        if arguments[0] == "commit":
            differing, failed = ask_git(root, "status", "--porcelain", "--", *paths)
            if not differing and not failed:
                return
        _, failed = ask_git(root, *arguments)
        if failed:
            ask_git(root, "reset", "--quiet", "--", *paths)
            raise UserError(f"{failed}; what was there before is there again")
