"""A small image of this machine's interpreter and its libraries, for a real container engine without a registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from models.sandbox.engines import EngineFault, ask_engine

IMAGE = "rewardflow-test:interpreter"
_LEFT_OUT = re.compile(r"/(site-packages|test|tests|idlelib|tkinter|ensurepip|lib2to3|config-[^/]*|__pycache__)(/|$)")
_PROGRAMS = ("sh", "cat", "ls", "echo", "sleep")


def real_engine(engine: str) -> str:
    """Make the image in an engine, if it lacks it, and return its name; skip the test if no such engine answers."""
    if shutil.which(engine) is None:
        pytest.skip(f"no {engine} here")
    try:
        ask_engine(engine, "ps", "--quiet")
        if IMAGE not in ask_engine(engine, "image", "ls", "--format", "{{.Repository}}:{{.Tag}}"):
            with tempfile.NamedTemporaryFile(suffix=".tar") as file:
                _write(Path(file.name))
                subprocess.run([engine, "import", file.name, IMAGE], check=True, capture_output=True, timeout=300)
        ask_engine(engine, "run", "--rm", "--network", "none", "--entrypoint", "python3", IMAGE, "-c", "pass")
    except EngineFault as error:
        pytest.skip(f"{engine} cannot run a container here: {error}")
    return IMAGE


def _write(file: Path) -> None:
    interpreter = Path(os.path.realpath(sys._base_executable))  # type: ignore[attr-defined]
    folder = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    library = Path(os.path.realpath(sys.base_prefix)) / "lib" / folder
    programs = {f"usr/bin/{name}": Path(shutil.which(name) or f"/bin/{name}") for name in _PROGRAMS}
    programs["usr/local/bin/python3"] = interpreter
    linked = {
        path for program in [*programs.values(), *library.glob("lib-dynload/*.so")] for path in _libraries(program)
    }
    with tarfile.open(file, "w") as image:
        for name in ("usr", "usr/bin", "usr/lib", "usr/lib64", "usr/local", "usr/local/bin", "usr/local/lib"):
            above = tarfile.TarInfo(name)
            above.type, above.mode = tarfile.DIRTYPE, 0o755
            image.addfile(above)
        for name, program in programs.items():
            image.add(os.path.realpath(program), name)
        for path in sorted(linked):
            image.add(os.path.realpath(path), f"usr/lib/{Path(path).name}")
        for loader in Path("/lib64").glob("ld-linux*"):
            image.add(os.path.realpath(loader), f"usr/lib64/{loader.name}")
        image.add(library, f"usr/local/lib/{folder}", filter=_kept)
        for name, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            image.addfile(link)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if _LEFT_OUT.search(f"/{member.name}") else member


def _libraries(program: Path) -> list[str]:
    ran = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False)
    return re.findall(r"=> (/\S+)", ran.stdout)
