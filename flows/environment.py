"""What must stand in the environment before any of the large packages is imported, in one place.

Prefect, MLflow and the others read their settings from environment variables, most of them once, at import. So the
command line and every flow call `prepare_environment()` first. A variable that the user has set is never changed.
vLLM's are set by its engine (models/engine/vllm_engine.py), which imports it last.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from models.errors import UserError

QUIET = {
    # Nothing is reported to anybody.
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    # MLflow's server would start runners of background jobs; Prefect's temporary server often needs more than 20 s.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    # Warnings of libraries that fork or log at length.
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # S3 servers other than Amazon's refuse the checksums that boto3 adds by itself.
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}

MLFLOW_PORT = 5000
PREFECT_PORT = 4200

STARTER = "REWARDFLOW_STARTER"
"""Process id of the command or flow, inherited by what it starts: whose id and parent differ has lost its starter."""


def state_folder() -> Path:
    """Folder of everything a run leaves on this machine: $REWARDFLOW_HOME, or .rewardflow in the working directory."""
    return Path(os.environ.get("REWARDFLOW_HOME") or ".rewardflow").absolute()


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


def prefect_folders(home: Path) -> dict[str, str]:
    """Where Prefect keeps what it keeps: in the state folder `home`, or in the user's PREFECT_HOME where it is set.

    PREFECT_HOME alone does not do it: Prefect 3 puts results and its server's memo into the user's home directory.
    """
    prefect = Path(os.environ.get("PREFECT_HOME") or home / "prefect")
    return {
        "PREFECT_HOME": str(prefect),
        "PREFECT_LOCAL_STORAGE_PATH": str(prefect / "storage"),
        "PREFECT_MEMO_STORE_PATH": str(prefect / "memo_store.toml"),
    }


def prepare_environment(make: bool = False) -> Path:
    """Set every variable above that is not set, and where Prefect lives. Returns the state folder.

    Args:
        make: make the folder too; Prefect's temporary server needs it there.

    PREFECT_API_URL is set only where the Prefect server that `rewardflow ui` or `schedule` started is alive; otherwise
    Prefect starts a temporary server of its own.
    """
    home = state_folder()
    for name, value in {**QUIET, **prefect_folders(home)}.items():
        os.environ.setdefault(name, value)
    if make:
        Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
    os.environ[STARTER] = str(os.getpid())
    os.environ["REWARDFLOW_HOME"] = str(home)  # absolute, so that child processes agree wherever they run
    # os.path.exists: Path.exists raises where it may not look; that is told by what writes there.
    if "PREFECT_API_URL" not in os.environ and os.path.exists(home / "servers.json"):
        from flows.server_record import running_servers

        prefect = running_servers(home).get("prefect")
        if prefect is not None:
            os.environ["PREFECT_API_URL"] = f"{prefect.address}/api"
    return home
