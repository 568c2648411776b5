"""How a flow calls its steps: a result of the last time is taken where the step's key is the same."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from flows import console
from flows.opening import Opened
from models.recipe.load import plain
from tasks import interrupt
from tasks.caching import reuse
from tasks.contents import policy_inputs
from tasks.step import StepResult, content_key, earlier_result
from tasks.steps.evaluate import name_of
from tasks.steps.validate_data import validate_data
from tasks.versions import DataVersion


class Called(NamedTuple):
    """A step that is done."""

    result: StepResult
    reused: bool
    """An earlier result was taken."""
    seconds: float


def call_cached(task: Any, key: str, home: Path, parent_run: str, refresh: bool, **arguments: Any) -> Called:
    """Call a task, or take its earlier result where there is one whose outputs are still what it says."""
    interrupt.raise_again()
    started = time.perf_counter()
    result: StepResult | None = None if refresh else earlier_result(home, task.name, key)
    reused = result is not None
    if result is None:
        console.quiet_transformers()  # only a step that runs needs it: importing it takes a second
        state = task(key=key, home=home, parent_run=parent_run, return_state=True, **arguments)
        interrupt.raise_again()
        result = state.result()
    else:
        shown = name_of(arguments["role"], arguments.get("split", "")) if "role" in arguments else task.name
        reuse(result, parent_run, shown)
    return Called(result, reused, time.perf_counter() - started)


def call_validation(opened: Opened, version: DataVersion, refresh: bool = False) -> Called:
    """Validate a version of the data: one key in every flow, so that a validation is done once for all of them."""
    sections = plain(opened.recipe)
    key = content_key("validate", version.digest, sections["validation"], policy_inputs(sections["policy"]))
    return call_cached(validate_data, key, opened.home, opened.run_id, refresh, recipe=opened.recipe, version=version)
