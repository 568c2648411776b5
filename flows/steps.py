"""How a flow calls its steps: a result of the last time is taken where the step's key is the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from flows.opening import Opened
from models.recipe.load import plain
from tasks import interrupt
from tasks.contents import policy_inputs
from tasks.step import StepResult, content_key, is_complete, record_reuse
from tasks.validate_data import validate_data
from tasks.versions import DataVersion


class Called(NamedTuple):
    """A step that is done."""

    result: StepResult
    reused: bool
    """An earlier result was taken."""
    seconds: float


def call_cached(task: Any, key: str, home: Path, parent_run: str, refresh: bool, **arguments: Any) -> Called:
    """Call a cached task. A cached result whose outputs were deleted is not taken: the step runs again."""
    interrupt.raise_again()
    fresh = refresh or not is_complete(home, task.name, key)
    started = time.perf_counter()
    call: Callable[..., Any] = task.with_options(refresh_cache=True) if fresh else task
    state = call(key=key, home=home, parent_run=parent_run, return_state=True, **arguments)
    interrupt.raise_again()
    result: StepResult = state.result()
    reused = state.name == "Cached"
    if reused:
        record_reuse(parent_run, result)
    return Called(result, reused, time.perf_counter() - started)


def call_validation(opened: Opened, version: DataVersion, refresh: bool = False) -> Called:
    """Validate a version of the data: one key in every flow, so that a validation is done once for all of them."""
    sections = plain(opened.recipe)
    key = content_key("validate", version.digest, sections["validation"], policy_inputs(sections["policy"]))
    return call_cached(validate_data, key, opened.home, opened.run_id, refresh, recipe=opened.recipe, version=version)
