"""Where everything lies on this machine, and what must stand in the environment before Prefect is imported.

Prefect reads its settings once, at import. So the package `flows` prepares the environment when it is imported, be it
by the command line, a deployment or a script, and no file of it need think of that. What the user has set is never
changed.
"""

from __future__ import annotations

import errno
import os
import tempfile
import warnings
from pathlib import Path

from models.disk import state_folder as state_folder
from models.errors import UserError
from tasks.host.environment import QUIET, keep_loopback_direct, name_user, set_where_unset

MLFLOW_PORT = 5000
PREFECT_PORT = 4200

STARTER = "REWARDFLOW_STARTER"
"""Process id of the command or flow, inherited by what it starts: whose id and parent differ has lost its starter."""


def writable_state_folder() -> Path:
    """The state folder, made where it is missing, for what writes to it.

    Raises:
        UserError: it cannot be written; said before anything was started.
    """
    home = state_folder()
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return home  # said with the space that is needed, by what needs it
        raise UserError(
            f"{home}: the state folder cannot be written ({error.strerror}); commands that only look work, for all "
            "others make it writable or set REWARDFLOW_HOME to a folder that is"
        ) from None
    return home


def tracking_database(home: Path) -> str:
    """Address of MLflow's SQLite store in the state folder `home`."""
    return f"sqlite:///{home / 'mlflow.db'}"


def artifact_folder(home: Path) -> Path:
    """Where MLflow's artifacts lie in the state folder `home`."""
    return home / "mlartifacts"


def prefect_folders(home: Path, chosen: str | None = None) -> dict[str, str]:
    """Where Prefect keeps what it keeps: in the folder `home`, or in `chosen`: the user's PREFECT_HOME, if left out.

    PREFECT_HOME alone does not do it: Prefect 3 puts results and its server's memo into the user's home directory.
    """
    prefect = Path((os.environ.get("PREFECT_HOME") if chosen is None else chosen) or home / "prefect")
    return {
        "PREFECT_HOME": str(prefect),
        "PREFECT_LOCAL_STORAGE_PATH": str(prefect / "storage"),
        "PREFECT_MEMO_STORE_PATH": str(prefect / "memo_store.toml"),
    }


def prepare_environment() -> Path:
    """Set where Prefect lives and which server it asks, where nothing says so. Returns the state folder.

    Nothing is written. PREFECT_API_URL is set only where the Prefect server that `rewardflow ui` or `schedule` started
    is alive; otherwise Prefect starts a temporary server of its own.
    """
    home = state_folder()
    set_where_unset(QUIET | prefect_folders(home))
    keep_loopback_direct()
    name_user(home / "home")
    os.environ[STARTER] = str(os.getpid())
    os.environ["REWARDFLOW_HOME"] = str(home)  # absolute, so that child processes agree wherever they run
    # os.path.exists: Path.exists raises where it may not look; that is told by what writes there.
    if "PREFECT_API_URL" not in os.environ and os.path.exists(home / "servers.json"):
        from flows.servers.server_record import running_servers

        prefect = running_servers(home).get("prefect")
        if prefect is not None:
            os.environ["PREFECT_API_URL"] = f"{prefect.address}/api"
    warnings.filterwarnings("ignore", "Failed to create the Prefect home directory")  # `make_prefect_home` does
    return home


def make_prefect_home() -> None:
    """Make the folder where Prefect lives, for its temporary server: it starts where a flow is called."""
    Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
