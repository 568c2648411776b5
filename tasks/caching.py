"""How steps are cached: on the content key that the flow computes from all that a step depends on."""

from __future__ import annotations

from typing import Any

from prefect.context import TaskRunContext


def _by_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    return f"rewardflow-{context.task.name}-{parameters['key']}"


cached_by_key: dict[str, Any] = {
    "cache_key_fn": _by_key,
    "persist_result": True,
    "result_serializer": "json",
}
"""Options of a task whose result is kept under its `key` argument."""
