"""Local folders, and the environment variables that must be set before Prefect is imported.

Prefect reads its settings once, at import. So the package `flows` prepares the environment when it is imported, whether
by the command line, a deployment or a script, and none of its files needs to do so. Variables that the user has set are
never changed.
"""

from __future__ import annotations

import errno
import os
import tempfile
import warnings
from pathlib import Path

from models.base.disk import state_folder as state_folder
from models.base.errors import UserError
from tasks.host.environment import QUIET, keep_loopback_direct, name_user, set_where_unset

MLFLOW_PORT = 5000
PREFECT_PORT = 4200

STARTER = "REWARDFLOW_STARTER"
"""Process id of the command or flow, inherited by its children: a child with another parent has lost its starter."""


def writable_state_folder() -> Path:
    """Return the state folder for commands that write to it; create it if it is missing.

    Raises:
        UserError: it cannot be written. Raised before anything is started.
    """
    home = state_folder()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return home  # the code that needs the space reports it, with the amount
        raise UserError(
            f"{home}: the state folder cannot be written ({error.strerror}); commands that only look work, for all "
            "others make it writable or set REWARDFLOW_HOME to a folder that is"
        ) from None
    return home


def tracking_database(home: Path) -> str:
    """Return the address of MLflow's SQLite store in the state folder `home`."""
    return f"sqlite:///{home / 'mlflow.db'}"


def artifact_folder(home: Path) -> Path:
    """Return the folder of MLflow's artifacts in the state folder `home`."""
    return home / "mlartifacts"


def prefect_folders(home: Path, chosen: str | None = None) -> dict[str, str]:
    """Return the environment variables for Prefect's folders.

    The folder is `chosen`; if that is None, the user's PREFECT_HOME; if neither is given, `prefect` in `home`.

    PREFECT_HOME alone is not enough: Prefect 3 puts results and its server's memo into the user's home directory.
    """
    prefect = Path((os.environ.get("PREFECT_HOME") if chosen is None else chosen) or home / "prefect")
    return {
        "PREFECT_HOME": str(prefect),
        "PREFECT_LOCAL_STORAGE_PATH": str(prefect / "storage"),
        "PREFECT_MEMO_STORE_PATH": str(prefect / "memo_store.toml"),
    }


def prepare_environment() -> Path:
    """Set Prefect's folders and server address if they are unset. Returns the state folder.

    Nothing is written. PREFECT_API_URL is set only if the Prefect server that `rewardflow ui` or `schedule` started is
    alive; otherwise Prefect starts a temporary server of its own.
    """
    home = state_folder()
    set_where_unset(QUIET | prefect_folders(home))
    keep_loopback_direct()
    name_user(home / "home")
    os.environ[STARTER] = str(os.getpid())
    os.environ["REWARDFLOW_HOME"] = str(home)  # absolute, so that child processes use the same folder
    # os.path.exists: Path.exists raises without permission; the code that writes there reports that.
    if "PREFECT_API_URL" not in os.environ and os.path.exists(home / "servers.json"):
        from flows.servers.server_record import running_servers

        prefect = running_servers(home).get("prefect")
        if prefect is not None:
            os.environ["PREFECT_API_URL"] = f"{prefect.address}/api"
    warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")  # `make_prefect_home` does
    return home


def make_prefect_home() -> None:
    """Create Prefect's folder for its temporary server, which starts when a flow is called."""
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
