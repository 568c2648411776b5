"""Backup of a state folder as one tar file while runs continue, and its restore, with all hashes checked.

The hashes in the file detect damage. A person who can write the file can change them too: the SHA-256 of the file
itself, stored elsewhere, protects against that.

A tar file: `state/` has the contents of the folder, with each SQLite database as a consistent snapshot;
`MANIFEST.json`, the last member, has a SHA-256 of every file. Databases are read before all other files: the files they
refer to were written before them. Locks, places in the queue and records of processes belong to this machine and
moment, and are not stored.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import IO, Any

from models.base.atomic_write import replace_file, replace_folder
from models.base.disk import needs_space
from models.base.errors import UserError
from models.base.file_hash import sha256_of
from tasks.messages.receivers import BLOCK
from tasks.registered.export import SERVING
from tasks.runner.progress import bytes_shown

STATE = "state"
MANIFEST = "MANIFEST.json"
FORMAT = 1
PACKAGES = ("rewardflow", "mlflow", "prefect")
"""Packages whose versions are in the manifest, because the format of their databases depends on them."""
OF_THE_MOMENT = {"servers.json", "queue", "services", "run.lock", SERVING}
"""Names in a state folder that are not backed up; services have a part of their own (flows/services/dump.py)."""
_SQLITE = b"SQLite format 3\0"
_CHUNK = 2**20


@dataclass(frozen=True)
class Contents:
    """Contents of a backup."""

    made: str
    """Time of the backup, UTC."""
    packages: dict[str, str]
    files: dict[str, tuple[int, str]]
    """Bytes and SHA-256 of each file, by its name in the tar file."""

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(size for size, _ in self.files.values())

    def holds(self, part: str) -> bool:
        """Return whether the backup has any file of a part, such as `state`."""
        return any(name.startswith(f"{part}/") for name in self.files)


def write_backup(file: Path, home: Path, parts: dict[str, Path] | None = None) -> Contents:
    """Back up the state folder `home` to `file`, which must not exist and becomes readable only by its owner.

    Args:
        file: written atomically.
        home: the state folder; runs may continue in it.
        parts: further folders by their name in the file.

    Raises:
        UserError: the file exists or would be in the state folder, the folder does not exist, or the disk is full.
    """
    if file.exists():
        raise UserError(f"{file} exists; a backup is never written over another")
    if not home.is_dir():
        raise UserError(f"{home}: no state folder, nothing to back up")
    if file.absolute().is_relative_to(home.absolute()):
        raise UserError(f"{file}: is in the state folder, and would be in the next backup; name another folder")
    with tempfile.TemporaryDirectory(prefix="rewardflow-backup-") as copies, replace_file(file) as partial_file:
        partial_file.touch(mode=0o600)
        sources = list(_state_files(home, Path(copies)))
        for name, folder in (parts or {}).items():
            sources += [(f"{name}/{path.relative_to(folder)}", path) for path in _files(folder)]
        written_files: dict[str, tuple[int, str]] = {}
        with tarfile.open(partial_file, "w") as tar, bytes_shown("backup", _size(sources)) as show:
            for name, path in sources:
                digest = _add(tar, name, path, show)
                if digest is not None:
                    written_files[name] = digest
            contents = Contents(datetime.now(UTC).isoformat(timespec="seconds"), _packages(), written_files)
            _add_manifest(tar, contents)
    return contents


def read_backup(file: Path, home: Path, parts: dict[str, Path] | None = None) -> Contents:
    """Restore the backup `file` into `home`, and its further parts into their folders; all must be missing or empty.

    Args:
        file: as `write_backup` wrote it.
        home: written atomically.
        parts: target folders of further parts, by their name; parts of the file that are not named here are left out.

    Raises:
        UserError: a folder is not empty, or the file is not a backup, is damaged, or would write outside of the folder.
    """
    targets = {STATE: home, **(parts or {})}
    for target in targets.values():
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"{target} is not empty; restore into a new folder (REWARDFLOW_HOME), then move it")
    contents = manifest(file)
    with (
        needs_space(home),
        tempfile.TemporaryDirectory(prefix=".restoring-", dir=_parent_folder(home)) as scratch_folder,
    ):
        restored_files: dict[str, tuple[int, str]] = {}
        with _opened(file) as tar, bytes_shown("restore", contents.bytes) as show:
            for member in tar:
                _require_plain(file, member)
                if member.name != MANIFEST:
                    restored_files[member.name] = _extract(tar, member, Path(scratch_folder), show)
        _require_same_files(file, contents.files, restored_files)
        for name, target in targets.items():
            if contents.holds(name):
                target.parent.mkdir(parents=True, exist_ok=True)
                with replace_folder(target) as partial_folder:
                    partial_folder.rmdir()
                    (Path(scratch_folder) / name).rename(partial_folder)
    return contents


def require_hash(file: Path, sha256: str) -> None:
    """Check that a backup is the one whose SHA-256 was noted when it was made.

    Raises:
        UserError: it is another file, does not exist, or the noted value is not a SHA-256.
    """
    expected = sha256.strip().lower()
    if not re.fullmatch("[0-9a-f]{64}", expected):
        raise UserError("--sha256 takes the 64 hexadecimal digits that `rewardflow backup` printed")
    if not file.is_file():
        raise UserError(f"{file} does not exist")
    if (actual := sha256_of(file)) != expected:
        raise UserError(f"{file}: its SHA-256 is {actual}, not {expected}: it was changed; nothing was restored")


def manifest(file: Path) -> Contents:
    """Read the manifest of a backup.

    Raises:
        UserError: it is not a backup, or is cut off.
    """
    with _opened(file) as tar:
        try:
            member = tar.extractfile(MANIFEST)
        except KeyError:
            member = None
        if member is None:
            raise UserError(f"{file}: has no {MANIFEST}: cut off, or no backup of rewardflow's")
        try:
            content: dict[str, Any] = json.loads(member.read())
            if content["format"] != FORMAT:
                raise UserError(f"{file}: is of format {content['format']}, this version reads {FORMAT}")
            files = {str(name): (int(size), str(digest)) for name, (size, digest) in content["files"].items()}
            return Contents(str(content["made"]), dict(content["packages"]), files)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{file}: its {MANIFEST} is damaged") from None


def other_packages(contents: Contents) -> list[str]:
    """Return one line for each package whose installed version differs from that in the backup."""
    installed = _packages()
    return [
        f"{name} was {before} and is {installed[name]} now: its database is migrated at its first start"
        for name, before in contents.packages.items()
        if installed.get(name, before) != before
    ]


def _state_files(home: Path, copies: Path) -> Iterator[tuple[str, Path]]:
    """Yield names and paths of the stored files of a state folder: first its databases, as consistent snapshots."""
    other_files = []
    for number, path in enumerate(_files(home)):
        relative_path = path.relative_to(home)
        if relative_path.parts[0] in OF_THE_MOMENT or path.suffix == ".lock":
            continue
        if _is_database(path):
            copy = copies / str(number)
            with (
                closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database,
                closing(sqlite3.connect(copy)) as snapshot,
            ):
                database.backup(snapshot)
                _forget_receivers(snapshot)
            yield f"{STATE}/{relative_path}", copy
        elif not path.name.endswith(("-wal", "-shm", "-journal")) or not _is_database(
            path.with_name(_database_name(path))
        ):
            other_files.append((f"{STATE}/{relative_path}", path))
    yield from other_files


def _forget_receivers(copy: sqlite3.Connection) -> None:
    """Delete the addresses of receivers from a copy of Prefect's database, which contains their key too.

    `rewardflow schedule` and `rewardflow automations` write them again.
    """
    if copy.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'block_document'").fetchone():
        copy.execute("DELETE FROM block_document WHERE name GLOB ?", (f"{BLOCK}-[0-9]*",))
        copy.commit()
        copy.execute("VACUUM")  # otherwise deleted rows, of now or before, remain in the file


def _database_name(journal: Path) -> str:
    """Return the name of the database that a journal of SQLite belongs to."""
    return journal.name.rpartition("-")[0]


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as handle:
            return handle.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _files(folder: Path) -> list[Path]:
    """Return the plain files below a folder, without links and files that are being written."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and not any(part.endswith(".part") for part in path.parts)
    ]


def _size(sources: list[tuple[str, Path]]) -> int:
    total = 0
    for _, path in sources:
        try:
            total += path.stat().st_size
        except OSError:
            continue
    return total


class _Hashing:
    """A file that is read once, with its hash and the progress of its bytes."""

    def __init__(self, handle: IO[bytes], show: Any) -> None:
        self._handle, self._show = handle, show
        self.digest = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """See `io.BufferedReader.read`."""
        chunk = self._handle.read(size)
        self.digest.update(chunk)
        self._show(len(chunk))
        return chunk


def _add(tar: tarfile.TarFile, name: str, path: Path, show: Any) -> tuple[int, str] | None:
    """Add a file; return its bytes and hash, or None if it was deleted since, as checkpoints and caches are."""
    try:
        handle = path.open("rb")
    except FileNotFoundError:
        return None
    with handle:
        info = tar.gettarinfo(arcname=name, fileobj=handle)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        reader = _Hashing(handle, show)
        tar.addfile(info, reader)  # type: ignore[arg-type]
        return info.size, reader.digest.hexdigest()


def _add_manifest(tar: tarfile.TarFile, contents: Contents) -> None:
    content = {"format": FORMAT, "made": contents.made, "packages": contents.packages, "files": contents.files}
    text = json.dumps(content, indent=1).encode()
    info = tarfile.TarInfo(MANIFEST)
    info.size, info.mode = len(text), 0o600
    tar.addfile(info, io.BytesIO(text))


def _packages() -> dict[str, str]:
    return {name: version(name) for name in PACKAGES}


@contextmanager
def _opened(file: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(file, "r:") as tar:
            yield tar
    except FileNotFoundError:
        raise UserError(f"{file} does not exist") from None
    except tarfile.TarError as error:
        raise UserError(f"{file}: is not a backup made by rewardflow, or is damaged ({error})") from None


def _require_plain(file: Path, member: tarfile.TarInfo) -> None:
    """Refuse members that are not plain files, or would leave the folder."""
    path = PurePosixPath(member.name)
    if not member.isfile() or path.is_absolute() or ".." in path.parts:
        raise UserError(f"{file}: {member.name} is not a plain file inside the folder; nothing was restored")


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, show: Any) -> tuple[int, str]:
    source = tar.extractfile(member)
    assert source is not None, "it is a plain file"
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with target.open("wb") as handle:
        target.chmod(member.mode & 0o777)
        while chunk := source.read(_CHUNK):
            handle.write(chunk)
            digest.update(chunk)
            size += len(chunk)
            show(len(chunk))
    return size, digest.hexdigest()


def _require_same_files(file: Path, recorded: dict[str, tuple[int, str]], restored: dict[str, tuple[int, str]]) -> None:
    for name in sorted({*recorded, *restored}):
        if recorded.get(name) != restored.get(name):
            raise UserError(f"{file}: {name} is not what was backed up; nothing was restored")


def _parent_folder(home: Path) -> Path:
    home.parent.mkdir(parents=True, exist_ok=True)
    return home.parent
