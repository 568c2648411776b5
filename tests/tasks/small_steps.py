"""The context of a step, and the inputs of the steps after the warm start: problems, a tiny policy, a flow's run."""

from models.datasets.schema import arrow_schema, file_name, write_rows
from tasks.runner.step import StepContext, StepResult
from tasks.tracking import registry, runs, store
from tests.support.tiny_loops import PROBLEMS, save_start


def context(home, step, key, run="", recipe=None):
    """Make the context that a step receives."""
    return StepContext(step, key, recipe, home, run)


def warm_started(folder):
    """Make the state folder, the run and the earlier results that `fine_tune` needs; the store is in that folder."""
    store.configure(folder / "home")
    parent = runs.open_flow_run("tiny", "a flow")
    clean = folder / "validate" / "clean"
    clean.mkdir(parents=True)
    for split in ("train", "validation", "gate"):
        rows = [
            {
                "id": f"{split} {problem.id}",
                "prompt": problem.prompt,
                "answer": "7",
                "level": 1,
                "tests": "",
                "entry_point": "",
            }
            for problem in PROBLEMS
        ]
        write_rows(clean / file_name("problems", split), rows, arrow_schema("problems"))
    start = save_start(folder / "warm_start" / "policy")
    links = {"model_id": registry.log_model(parent, start, "warm-start", "text-generation")}
    made = {"key": "k", "digest": "d", "headline": "", "metrics": {}, "run_id": parent, "seconds": 0.0}
    return {
        "home": folder / "home", "run": parent, "rewarded": None,
        "validated": StepResult(step="validate", folder=str(clean.parent), **made),
        "warmed": StepResult(step="warm_start", folder=str(folder / "warm_start"), links=links, **made),
    }  # fmt: skip
