"""Container engines of this machine: the programs docker and podman, found and tried."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from models.base.errors import UserError, last_line, shortened

ENGINES = ("docker", "podman")
"""Programs with the same command line, in the order in which they are tried."""
_SECONDS = 30.0
"""Time that an engine may take for a short command, seconds."""


class EngineFault(Exception):
    """An engine failed; the message is its reason, in one line."""


def ask_engine(engine: str, *words: str) -> str:
    """Run a short command of an engine and return its output.

    Raises:
        EngineFault: it fails, or does not answer.
    """
    try:
        ran = subprocess.run([engine, *words], capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise EngineFault(f"no answer within {_SECONDS:g} s") from None
    except OSError as error:
        raise EngineFault(error.strerror or str(error)) from None
    if ran.returncode:
        raise EngineFault(error_line(ran.stderr) or f"status {ran.returncode}")
    return ran.stdout.strip()


def error_line(text: str) -> str:
    """Return the last line of an error output, without advice on usage, shortened; empty if there is none."""
    return last_line("\n".join(line for line in text.splitlines() if "--help" not in line))


def choose_engine(named: str | None) -> str:
    """Return the engine that runs containers: the named one, or the first that answers.

    Raises:
        UserError: none is installed, or none answers.
    """
    names = [named] if named else list(ENGINES)
    installed = [name for name in names if shutil.which(name)]
    if not installed:
        missing = f"{named}, which is" if named else "docker or podman, which are"
        raise UserError(f"sandbox.runner: container needs {missing} not installed; install it, or set runner: local")
    faults = []
    for name in installed:
        try:
            ask_engine(name, "ps", "--quiet")
        except EngineFault as error:
            faults.append(f"{name} does not answer ({error})")
        else:
            return name
    raise UserError(f"sandbox.runner: container: {'; '.join(faults)}; start its service, or set runner: local")


def check_image(engine: str, image: str) -> None:
    """Check that an image is on this machine. A run never downloads one, so that it does not change unnoticed.

    Raises:
        UserError: it is not.
    """
    try:
        ask_engine(engine, "image", "inspect", "--format", "{{.Id}}", image)
    except EngineFault as error:
        name = shortened(image)
        raise UserError(
            f"sandbox.image: {engine} has no image {name} ({error}); get it: {engine} pull {name}"
        ) from None


def engine_lines(names: Sequence[str] = ENGINES) -> list[str]:
    """Describe each installed engine: its version, or why it does not answer; empty if none is installed."""
    lines = []
    for name in names:
        if shutil.which(name) is None:
            continue
        try:
            ask_engine(name, "ps", "--quiet")
            lines.append(f"{name} answers ({ask_engine(name, '--version')})")
        except EngineFault as error:
            lines.append(f"{name} does not answer ({error})")
    return lines
