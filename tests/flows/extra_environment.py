"""Virtual environments for extras: the packages of an extra's lock in addition to those of the tests."""

import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT


def interpreter_with(lock: str, folder: Path) -> Path:
    """Make an interpreter in `folder` with the packages of a lock in addition to those of the tests.

    Skip the test if they cannot be installed.
    """
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    here = next(path for path in map(Path, sys.path) if path.name == "site-packages")
    (packages / "below.pth").write_text(f"import site; site.addsitedir({str(here)!r})\n")
    made = folder / "bin" / "python"
    install = [str(made), "-m", "pip", "install", "--quiet", "--no-deps", "-r", str(ROOT / lock)]
    ended = subprocess.run(install, capture_output=True, text=True)
    if ended.returncode:
        pytest.skip(f"{lock} cannot be installed here: {ended.stderr.strip().splitlines()[-1]}")
    return made
