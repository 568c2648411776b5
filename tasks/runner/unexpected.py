"""Retries of Prefect's tasks after any Exception but a UserError, which would recur."""

from __future__ import annotations

from typing import Any

from prefect.tasks import exponential_backoff

from models.base.errors import UserError


def is_unexpected(task: Any, task_run: Any, state: Any) -> bool:
    """Return whether a task failed with an Exception other than UserError, so that Prefect retries the task.

    It is a `retry_condition_fn`. A UserError would recur, so the task is not retried after one.
    """
    try:
        state.result()
    except UserError:
        return False
    except Exception:
        return True
    return False


RETRY_OPTIONS: dict[str, Any] = {
    "retries": 3,
    "retry_delay_seconds": exponential_backoff(backoff_factor=2),
    "retry_condition_fn": is_unexpected,
}
"""Prefect's options for a task that needs the network and can be repeated safely: three retries."""
