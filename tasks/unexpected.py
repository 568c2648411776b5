"""Which failures are worth another try: those that nobody caused by what they wrote."""

from __future__ import annotations

from typing import Any

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
