"""Select the failures worth retrying: those that were not caused by a user's input."""

from __future__ import annotations

from typing import Any

from prefect.tasks import exponential_backoff

from models.base.errors import UserError


def is_unexpected(task: Any, task_run: Any, state: Any) -> bool:
    """Return whether a failure is not a UserError, which would recur: for Prefect's `retry_condition_fn`."""
    try:
        state.result()
    except UserError:
        return False
    except Exception:
        return True
    return False


tried_again: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": exponential_backoff(backoff_factor=2),
    "retry_condition_fn": is_unexpected,
}
"""Options of a task that needs the network and can be repeated safely."""
