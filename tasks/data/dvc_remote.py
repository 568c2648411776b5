"""The DVC remote that the environment names: DATA_REMOTE, an s3:// address, stands before the repository's own default.

The `dvc` command line takes no address, only names out of its configuration. It is given one on the level below the
user's and the repository's, in a file that lasts as long as the command: nothing is left where the variable is unset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.errors import UserError

NAME = "environment"
"""What the remote is called in DVC's configuration."""
SYSTEM = "/etc/xdg/dvc"
"""Where DVC looks for the configuration of the machine, unless DVC_SYSTEM_CONFIG_DIR says otherwise."""
ASKING = ("push", "pull", "fetch")
"""Commands of DVC that ask a remote."""


def wished() -> str:
    """The address, or "" where the repository's own remote is meant.

    Raises:
        UserError: it is no s3:// address. It is not repeated: it may hold a password.
    """
    address = os.environ.get("DATA_REMOTE", "")
    if address and (not address.startswith("s3://") or "@" in address):
        raise UserError("DATA_REMOTE must be an address like s3://bucket/prefix, without user or password")
    return address


def settings() -> dict[str, Any]:
    """What goes on top of the repository's configuration, as DVC's own classes take it; empty where nothing does."""
    return {"core": {"remote": NAME}, "remote": {NAME: _remote()}} if wished() else {}


@contextmanager
def on_the_command_line(arguments: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Arguments of a `dvc` command, and what its environment needs besides, so that it asks the remote that is meant.

    Args:
        arguments: the command and its own; one that names a remote keeps it.
    """
    if not wished() or arguments[0] not in ASKING or "--remote" in arguments:
        yield arguments, {}
        return
    machine = Path(os.environ.get("DVC_SYSTEM_CONFIG_DIR") or SYSTEM) / "config"
    before = machine.read_text() if machine.is_file() else ""
    lines = [f"['remote \"{NAME}\"']", *(f"    {key} = {value}" for key, value in _remote().items())]
    with TemporaryDirectory(prefix="rewardflow-dvc-") as folder:
        (Path(folder) / "config").write_text("\n".join([before, *lines, ""]))
        yield [arguments[0], "--remote", NAME, *arguments[1:]], {"DVC_SYSTEM_CONFIG_DIR": folder}


def _remote() -> dict[str, str]:
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    return {"url": wished(), **({"endpointurl": endpoint} if endpoint else {})}
