"""Environment variables that large packages read on import; importing `tasks` sets them before those packages.

A variable that the user has set is never changed. The variables of torch are in models/__init__.py, those of vLLM in
its engine, which imports it last; the location of Prefect is in flows/runtime/environment.py.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from models.base.http_answers import loopback_direct

QUIET = {
    # No usage data are sent.
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
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # the command prints at its end where the run is
    "MLFLOW_DISABLE_ENV_CREATION": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    # One call fails within about ten seconds; retries above it are done and logged by the tracking package.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    # Warnings of libraries that fork or log at length.
    "TOKENIZERS_PARALLELISM": "false",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # S3 servers other than Amazon's refuse the checksums that boto3 adds by itself.
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}


def keep_loopback_direct() -> None:
    """Let every HTTP client in this process and its children reach servers of this machine without a proxy."""
    os.environ.update(loopback_direct(os.environ))


def nameless_user() -> str:
    """Return `uidNUMBER` if the machine's list of users has no entry for this process's user; otherwise ""."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return f"uid{os.getuid()}"
    return ""


def name_user(home: Path) -> None:
    """Set a name and a home folder for a user without an entry, for this process and its children.

    Containers run under user ids without a name (OpenShift, `docker run --user`). DVC and others need the user's name,
    Prefect and others the home folder, and fail otherwise.

    Args:
        home: the home folder if HOME is not set; it is not created here.
    """
    number = nameless_user()
    if number:
        name = os.environ.get("LOGNAME") or os.environ.get("USER") or number
        set_where_unset({"USER": name, "LOGNAME": name, "HOME": str(home)})


def set_where_unset(settings: dict[str, str]) -> None:
    """Put settings into the environment of this process and of its children, unless they are set."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)
