"""Calls of a flow's steps, which reuse the earlier result of a step with the same key."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from flows.runtime import console
from flows.runtime.environment import make_prefect_home
from flows.runtime.opening import FlowContext
from models.base.sections import Sections
from tasks.runner import interrupt
from tasks.runner.caching import reuse
from tasks.runner.step import StepContext, StepResult, content_key, earlier_result

make_prefect_home()  # here, because all flows import this module: a flow call starts the temporary server

Read = TypeVar("Read", bound=Sections)


def context_of(opened: FlowContext, step: str, recipe: Read, *inputs: Any, name: str = "") -> StepContext[Read]:
    """Build the context of a step, with its sections of the recipe and a key computed from these and all inputs.

    Args:
        inputs: results of other steps, and plain data; the run's id for a step that is never reused from another run.
        name: name of the step's run.
    """
    return named_context(opened, step, content_key(step, recipe, *inputs), recipe, name)


def call_step(
    opened: FlowContext, task: Any, recipe: Sections, *inputs: Any, refresh: bool = False, name: str = ""
) -> StepResult:
    """Run a step, or reuse the earlier result with the same key if its outputs are unchanged.

    The key covers exactly what the task is called with.
    """
    return call_cached(task, context_of(opened, task.name, recipe, *inputs, name=name), *inputs, refresh=refresh)


def call_cached(task: Any, context: StepContext[Any], *inputs: Any, refresh: bool = False) -> StepResult:
    """Run a step as `call_step` does, with a context that is built already."""
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


def named_context(opened: FlowContext, step: str, key: str, recipe: Read, name: str = "") -> StepContext[Read]:
    limit = opened.recipe.timeouts.of(step)
    return StepContext(step, key, recipe, opened.home, opened.run_id, name, limit)
