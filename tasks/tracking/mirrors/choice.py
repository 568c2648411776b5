"""The choice of the mirrors: `rewardflow run --mirror NAME`, else the environment variable REWARDFLOW_MIRRORS.

The choice is not a key of the recipe. A recipe describes a method: with or without a mirror, a run is the same run,
with the same hash, the same model and the same way to reproduce it. A recipe is also a file that people take from
others: it must not send data to an account of the person who runs it. And the choice applies to all flows, also those
of a schedule and `rewardflow compare`. So it is next to MLFLOW_TRACKING_URI and REWARDFLOW_NOTIFY_URL, where users
look for settings of this kind.

This module is light: the command line and `rewardflow doctor` import it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from models.base.errors import UserError

VARIABLE = "REWARDFLOW_MIRRORS"
"""Names of mirrors, separated by spaces or commas."""
NAMES = ("tensorboard", "wandb", "trackio")
"""Each is also the name of the package that it needs."""
FOLDER = "mirrors"
"""Folder of all mirrors, in the state folder."""
INSTALL = "pip install 'rewardflow[mirrors]' (in a checkout: pip install --no-deps -r mirrors.lock)"

_paused = 0


@dataclass(frozen=True)
class Installed:
    """A chosen mirror, for `rewardflow doctor`."""

    name: str
    version: str
    """Version of its package; empty if it is not installed."""
    place: str
    """Where it writes, in words."""


def chosen() -> tuple[str, ...]:
    """Return the names of the chosen mirrors, each once; none within `paused`.

    Raises:
        UserError: a name is unknown.
    """
    if _paused:
        return ()
    return _checked(os.environ.get(VARIABLE, "").replace(",", " ").split(), VARIABLE)


def choose(names: Sequence[str]) -> None:
    """Choose mirrors for this process and its children, in preference to the environment's.

    Raises:
        UserError: a name is unknown, or a package is not installed.
    """
    wanted = _checked(names, "--mirror")
    _require_installed(wanted, "--mirror")
    os.environ[VARIABLE] = " ".join(wanted)


def require_installed() -> tuple[str, ...]:
    """Return the names of the chosen mirrors.

    Raises:
        UserError: a name is unknown, or a package is not installed.
    """
    names = chosen()
    _require_installed(names, VARIABLE)
    return names


@contextmanager
def paused() -> Iterator[None]:
    """Choose no mirror within the block, for runs outside the user's record."""
    global _paused
    _paused += 1
    try:
        yield
    finally:
        _paused -= 1


def installed(home: Path) -> list[Installed]:
    """Return the chosen mirrors, with the versions of their packages and where they write.

    Args:
        home: the state folder.

    Raises:
        UserError: a name is unknown.
    """
    return [Installed(name, _version(name), place_of(name, home)) for name in chosen()]


def place_of(name: str, home: Path) -> str:
    """Return where a mirror writes, in words; addresses of servers are not shown, as they may hold a login."""
    if name == "wandb":
        mode = os.environ.get("WANDB_MODE", "online")
        folder = f"{os.environ.get('WANDB_DIR') or home / FOLDER}/wandb"
        if mode in ("offline", "dryrun"):
            return f"offline, {folder}"
        server = "the server in WANDB_BASE_URL" if os.environ.get("WANDB_BASE_URL") else "W&B's server"
        return "disabled by WANDB_MODE" if mode == "disabled" else f"sent to {server}, with a copy in {folder}"
    if name == "trackio":
        return os.environ.get("TRACKIO_DIR") or str(home / FOLDER / name)
    return str(home / FOLDER / name)


def _checked(names: Sequence[str], source: str) -> tuple[str, ...]:
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(NAMES)}"
            raise UserError(f"{source}: no mirror {name!r}; {known}")
    return tuple(dict.fromkeys(names))


def _require_installed(names: Sequence[str], source: str) -> None:
    missing = [name for name in names if not _version(name)]
    if missing:
        raise UserError(f"{source}: {' and '.join(missing)} not installed, which the mirror needs: {INSTALL}")


def _version(package: str) -> str:
    # Not find_spec: a folder `wandb/` in the working directory, which wandb itself makes there, is importable too.
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
