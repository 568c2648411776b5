"""The caching of steps' results in the state folder, by content key; Prefect's own caching is off.

Prefect's own results and keys are not used: they do not check whether the files that a result names are unchanged, or
which step they belong to.
"""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from tasks.runner.step import StepContext, StepResult, record_reuse

cached_by_key: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "task_run_name": "{context.name}"}
"""Options of a task that turn Prefect's cache off: `tasks.runner.step.earlier_result` finds earlier results by key."""


@task(name="reuse", **cached_by_key | {"task_run_name": "{context.name}: reused"})
def reuse(context: StepContext[Any], result: StepResult) -> State[None]:
    """Record in Prefect and MLflow that a step reused an earlier result."""
    record_reuse(context, result)
    return Completed(name="Cached", message=f"Its outputs are what MLflow run {result.run_id} made: {result.headline}")
