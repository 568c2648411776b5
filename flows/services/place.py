"""Folder of a set of services, with their files, their ports, and the settings of their clients.

    FOLDER/ports.json      ports of 127.0.0.1, chosen once
    FOLDER/secrets/        generated, readable by the owner only: PostgreSQL's password file, S3's keys
    FOLDER/database/       PostgreSQL's
    FOLDER/objects/        the S3 server's: a bucket is a folder, an object a file
    FOLDER/prefect/        the Prefect server's own
    FOLDER/logs/           one log per server
    FOLDER/servers.json    the processes (flows/servers/server_record.py)

No password and no key is in a command line, in the environment of a client or in a log: programs get the names of the
files.
"""

from __future__ import annotations

import configparser
import io
import json
import os
import secrets
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path

from flows.servers.server_process import port_is_free
from flows.servers.server_record import HOST
from models.base.atomic_write import replace_file, write_file
from models.base.errors import UserError
from tasks.state.storage import Keys

NAMES = ("database", "store", "mlflow", "prefect")
"""The services, in start order: each may need those before it."""
USER = "rewardflow"
"""PostgreSQL's user, who owns both databases."""
BUCKET = "s3://rewardflow"
REGION = "us-east-1"
"""Region with which requests are signed; an S3 server other than Amazon's accepts any."""


@dataclass(frozen=True)
class ServiceFolder:
    """The folder of one set of services: PostgreSQL, S3 server, MLflow and Prefect."""

    folder: Path

    def ports(self) -> dict[str, int]:
        """Return the port of each service.

        Raises:
            UserError: no ports were chosen because the services were never started here; or the file is broken.
        """
        try:
            ports: dict[str, int] = json.loads(self._ports.read_text())
            return {name: int(ports[name]) for name in NAMES}
        except FileNotFoundError:
            raise UserError(f"{self.folder}: no services were started here; `rewardflow services start` does") from None
        except (ValueError, TypeError, KeyError):
            raise UserError(f"{self._ports} is broken; remove it, and the next start chooses new ports") from None

    def choose_ports(self, running: frozenset[str] | set[str]) -> list[str]:
        """Choose ports for services that have none, and new ports for services whose port another program has taken.

        Args:
            running: services that keep their port because they listen on it.

        Returns:
            The services whose port has changed.
        """
        before = self.ports() if self._ports.is_file() else {}
        kept = {name: port for name, port in before.items() if name in running or port_is_free(port)}
        chosen = kept | dict(zip([name for name in NAMES if name not in kept], _free_ports(), strict=False))
        if chosen != before:
            write_file(self._ports, json.dumps(chosen, indent=2) + "\n")
        return [name for name in before if chosen[name] != before[name]]

    def make_secrets(self) -> None:
        """Generate missing secrets: PostgreSQL's password and S3's keys, in files that only their owner can read."""
        self.secrets.mkdir(parents=True, exist_ok=True)
        self.secrets.chmod(0o700)  # before anything is in it
        if not self.password_file.is_file():
            _write_secret(self.password_file, f"{HOST}:*:*:{USER}:{secrets.token_urlsafe(24)}\n")
        if not self.credentials.is_file():
            keys = configparser.ConfigParser()
            keys["default"] = {
                "aws_access_key_id": secrets.token_hex(10),
                "aws_secret_access_key": secrets.token_hex(20),
            }
            text = io.StringIO()
            keys.write(text)
            _write_secret(self.credentials, text.getvalue())

    @property
    def password_file(self) -> Path:
        """PostgreSQL's password file: libpq and asyncpg read it if PGPASSFILE names it."""
        return self.secrets / "pgpass"

    @property
    def credentials(self) -> Path:
        """File of S3's keys, for AWS_SHARED_CREDENTIALS_FILE."""
        return self.secrets / "aws_credentials"

    @property
    def secrets(self) -> Path:
        """Folder of the password file and the key file."""
        return self.folder / "secrets"

    @property
    def _ports(self) -> Path:
        return self.folder / "ports.json"

    def password(self) -> str:
        """Return the password of PostgreSQL's user."""
        return self.password_file.read_text().strip().rsplit(":", 1)[1]

    def keys(self) -> Keys:
        """Return the keys of the S3 server."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(self.credentials)
        return Keys(parser["default"]["aws_access_key_id"], parser["default"]["aws_secret_access_key"])

    def address(self, name: str) -> str:
        """Return `http://127.0.0.1:PORT` of a service."""
        return f"http://{HOST}:{self.ports()[name]}"

    def database_uri(self, driver: str, database: str) -> str:
        """Return the address of one of the two databases for SQLAlchemy; the password comes from PGPASSFILE."""
        return f"postgresql+{driver}://{USER}@{HOST}:{self.ports()['database']}/{database}"

    def storage(self) -> dict[str, str]:
        """Return the environment variables of a client of the S3 server."""
        return {
            "AWS_ENDPOINT_URL": self.address("store"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.credentials),
            "AWS_DEFAULT_REGION": REGION,
            # Servers other than Amazon's refuse the checksums that boto3 adds by itself.
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
        }

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a client of all services."""
        return {
            "PREFECT_API_URL": f"{self.address('prefect')}/api",
            "MLFLOW_TRACKING_URI": self.address("mlflow"),
            "DATA_REMOTE": f"{BUCKET}/data",
            **self.storage(),
        }


OVERRULING = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
"""Variables that take precedence over AWS_SHARED_CREDENTIALS_FILE."""


def shell_lines(environment: dict[str, str]) -> str:
    """Format environment variables as shell commands, after an `unset` of the `OVERRULING` ones."""
    return "\n".join(
        [f"unset {' '.join(OVERRULING)}", *(f"export {key}={shlex.quote(value)}" for key, value in environment.items())]
    )


def _write_secret(path: Path, text: str) -> None:
    with replace_file(path) as partial_file:
        handle = os.open(partial_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(text)


def _free_ports() -> list[int]:
    """Return as many free ports as there are services."""
    probes = [socket.socket() for _ in NAMES]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
