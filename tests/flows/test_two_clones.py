"""Two clones of one user share no results of steps, and no file of Prefect is written to the user's home."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT, Pair, ask, wait_for

A_THEN_B_THEN_A = """
import json, sys
from pathlib import Path
from flows.runtime.steps import call_cached
from prefect import flow, task
from tasks.runner.caching import cached_by_key
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.tracking import runs, store

@task(name="one", **cached_by_key)
def one(context: StepContext[None]) -> StepResult:
    def work(folder: Path, run_id: str) -> StepOutput:
        (folder / "output").write_text(str(context.home))
        return StepOutput("digest", "went well")
    return run_step(context, work)

@flow
def clone(home: Path) -> tuple[str, bool, str]:
    store.configure(home)
    called = call_cached(one, StepContext("one", "k" * 64, None, home, runs.open_flow_run("clones", "a flow")))
    return called.folder, called.reused, called.run_id

print(json.dumps([clone(Path(home)) for home in sys.argv[1:]]))
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_a_clone_is_never_handed_another_ones_folders_and_nothing_is_left_in_the_users_home(
    servers: Pair, tmp_path: Path
) -> None:
    a, b, user = tmp_path / "a", tmp_path / "b", tmp_path / "user"
    user.mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PREFECT_", "MLFLOW_TRACKING"))}
    ended = subprocess.run(
        [sys.executable, "-c", A_THEN_B_THEN_A, *map(str, (a, b, a, b))],
        cwd=ROOT,
        env={**kept, "HOME": str(user), "REWARDFLOW_HOME": str(a), "PREFECT_API_URL": f"{servers.prefect}/api"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    first, second, third, fourth = json.loads(ended.stdout.splitlines()[-1])
    assert [Path(called[0]).relative_to(tmp_path).parts[0] for called in (first, second, third, fourth)] == list("abab")
    assert [called[1] for called in (first, second, third, fourth)] == [False, False, True, True]
    assert (third[2], fourth[2]) == (first[2], second[2])
    shown = wait_for(
        "the reused steps in the Prefect UI",
        lambda: ask(f"{servers.prefect}/api/task_runs/filter", {"task_runs": {"name": {"like_": "one: reused"}}}),
    )
    assert {run["state_name"] for run in shown} == {"Cached"}
    assert [file for file in user.rglob("*") if "prefect" in str(file)] == []
