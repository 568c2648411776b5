"""Which failures are worth another try: those that nobody caused by what they wrote."""

from __future__ import annotations

from typing import Any

from prefect.tasks import exponential_backoff

from models.errors import UserError


def is_unexpected(task: Any, task_run: Any, state: Any) -> bool:
    """For Prefect's `retry_condition_fn`: a UserError would fail again the same way, anything else may pass."""
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
"""Options of a task that needs the network and may be done twice."""
