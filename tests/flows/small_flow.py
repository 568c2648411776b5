"""A command with one small flow, for tests of interruptions. It works like `rewardflow run`, but prints its moments.

Start it as `python small_flow.py` with the state folder in REWARDFLOW_HOME. It prints lines `at MOMENT`.
"""

import atexit
import gc
import time
from pathlib import Path
from typing import Any

from flows import command_line
from flows.runtime import console
from flows.runtime.environment import state_folder
from flows.servers import temporary_server
from tasks.runner import interrupt


def at(moment: str) -> None:
    print(f"at {moment}", flush=True)


def small() -> None:
    """Run the small flow."""
    atexit.register(lambda: (at("closing"), time.sleep(2)))
    server_answers = temporary_server.start(state_folder())
    at("server starts")
    from prefect import flow, task

    from flows.runtime.opening import closed_with, own_folder
    from flows.runtime.steps import call_cached
    from tasks.compute.gpu_place import gpu_slot
    from tasks.runner.caching import cached_by_key
    from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
    from tasks.tracking import runs

    @task(name="loop", **cached_by_key)
    def loop(context: StepContext[None]) -> StepResult:
        def work(folder: Path, run_id: str) -> StepOutput:
            assert gc.isenabled(), "what lasts collects garbage"
            try:
                at("round")
                time.sleep(1)
            except KeyboardInterrupt:  # some libraries do this
                at("swallowed")
            return StepOutput("digest", "headline")

        with gpu_slot():
            return run_step(context, work)

    @flow(name="small")
    def body() -> Any:
        with own_folder("small") as home:
            run_id = runs.open_flow_run("small", "small")
            with closed_with(run_id):
                call_cached(loop, StepContext("loop", "a key", None, home, run_id))
        at("end of the body")
        return run_id

    console.quiet(caller_prints_error=True)
    server_answers()
    body()
    interrupt.raise_again()
    at("end")


command_line.app.command()(small)

if __name__ == "__main__":
    command_line.main()
