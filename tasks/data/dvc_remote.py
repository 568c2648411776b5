"""The DVC remote of the environment variable DATA_REMOTE, an s3:// address that overrides the repository's default.

The `dvc` command line takes no address, only names from its configuration. The remote is therefore added to the
system-level configuration, below the user's and the repository's, in a file that exists only during the command. If the
variable is unset, nothing is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.base.errors import UserError

NAME = "environment"
"""Name of the remote in DVC's configuration."""
SYSTEM = "/etc/xdg/dvc"
"""Folder of DVC's system configuration, unless DVC_SYSTEM_CONFIG_DIR names another."""
ASKING = ("push", "pull", "fetch")
"""Commands of DVC that access a remote."""


def configured_remote() -> str:
    """Return the address in DATA_REMOTE; "" if it is unset, so that the repository's own remote is used.

    Raises:
        UserError: it is not an s3:// address. The message does not repeat it, as it may contain a password.
    """
    address = os.environ.get("DATA_REMOTE", "")
    if address and (not address.startswith("s3://") or "@" in address):
        raise UserError("DATA_REMOTE must be an address like s3://bucket/prefix, without user or password")
    return address


def settings() -> dict[str, Any]:
    """Return the settings that override the repository's, for DVC's own classes; empty without DATA_REMOTE."""
    return {"core": {"remote": NAME}, "remote": {NAME: _remote()}} if configured_remote() else {}


@contextmanager
def on_the_command_line(arguments: list[str]) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Yield a `dvc` command's arguments and further environment variables, with which it uses DATA_REMOTE.

    Args:
        arguments: the command and its arguments; a command that names a remote keeps it.
    """
    if not configured_remote() or arguments[0] not in ASKING or "--remote" in arguments:
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
    return {"url": configured_remote(), **({"endpointurl": endpoint} if endpoint else {})}
