"""A training's calls of the tracking package, for tests of mirrors: `python mirrored_training.py HOME EXPERIMENT`.

The process kills itself in round 8, after a checkpoint in round 5.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tasks.tracking import records, runs, store, tags
from tasks.tracking.metrics import MetricLog

RECIPE = "name: sums\nschedule: {rounds: 10}\n"


def training(home: Path, experiment: str, done: int = 0, at: Callable[[int], None] | None = None) -> tuple[str, str]:
    """Record a training of ten rounds, resumed after round `done`. Return the runs of the flow and of the step.

    Args:
        home: the state folder of the store in use.
        experiment: name of the experiment.
        done: rounds of the checkpoint.
        at: called in each round, with its number.
    """
    params = {"schedule": {"rounds": 10}, "name": experiment}
    flow = runs.open_flow_run(experiment, f"train {experiment}", {tags.RECIPE: experiment}, params)
    file = home / "sums.yaml"
    file.write_text(RECIPE)
    records.log_artifact(flow, file, "recipe")
    step = runs.open_step_run(flow, "fine_tune")
    with MetricLog(step, home / "store/fine_tune" / experiment / "metrics.jsonl") as log:
        log.replay(done)
        for round_number in range(done + 1, 11):
            log(round_number, {"reward/total": round_number / 2, "pass@1": round_number / 16})
            if at is not None:
                at(round_number)
    records.log_metrics(step, {"seconds": 2.5})
    runs.set_tags(step, {tags.PRECISION: "float32"})
    runs.close_run(step)
    records.log_metrics(flow, {"held_out/accuracy": 0.5})
    records.describe(flow, "## promoted")
    runs.close_run(flow)
    return flow, step


def die(round_number: int) -> None:
    if round_number == 8:
        time.sleep(5)  # the mirrors have begun
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    store.configure(Path(sys.argv[1]))
    training(Path(sys.argv[1]), sys.argv[2], at=die)
