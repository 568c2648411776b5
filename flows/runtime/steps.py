"""How a flow calls its steps: a result of the last time is taken where the step's key is the same."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from flows.runtime import console
from flows.runtime.environment import make_prefect_home
from flows.runtime.opening import Opened
from models.recipe.sections import Sections
from tasks.runner import interrupt
from tasks.runner.caching import reuse
from tasks.runner.step import StepContext, StepResult, content_key, earlier_result

make_prefect_home()  # here, as all flows come by: its temporary server starts where one is called

Read = TypeVar("Read", bound=Sections)


def context_of(opened: Opened, step: str, recipe: Read, *inputs: Any, name: str = "") -> StepContext[Read]:
    """What a step is handed: sections of the recipe, and a key of them and of all else that it is given.

    Args:
        inputs: results of other steps, and plain data; the run's id for a step that is never taken from another run.
        name: what the step's run is called.
    """
    return named_context(opened, step, content_key(step, recipe, *inputs), recipe, name)


def call_step(
    opened: Opened, task: Any, recipe: Sections, *inputs: Any, refresh: bool = False, name: str = ""
) -> StepResult:
    """Call a task with its sections and inputs, or take its earlier result where there is one whose outputs are still
    what it says. What it is called with is what its key holds, and nothing else."""
    return call_cached(task, context_of(opened, task.name, recipe, *inputs, name=name), *inputs, refresh=refresh)


def call_cached(task: Any, context: StepContext[Any], *inputs: Any, refresh: bool = False) -> StepResult:
    """As `call_step`, under the key of `context`."""
    interrupt.raise_again()
    started = time.perf_counter()
    result = None if refresh else earlier_result(context)
    reused = result is not None
    if result is None:
        console.quiet_transformers()  # only a step that runs needs it: importing it takes a second
        state = task(context, *inputs, return_state=True)
        interrupt.raise_again()
        result = state.result()
    else:
        reuse(context, result)
    return result.model_copy(update={"reused": reused, "seconds": time.perf_counter() - started})


def named_context(opened: Opened, step: str, key: str, recipe: Read, name: str = "") -> StepContext[Read]:
    limit = opened.recipe.timeouts.of(step)
    return StepContext(step, key, recipe, opened.home, opened.run_id, name, limit)
