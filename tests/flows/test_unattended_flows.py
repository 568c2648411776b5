"""What must be true of the flows that run by themselves: the champion measured again, the data refreshed."""

import re
import subprocess
import sys

import pytest
from project import Project, Ran, environment, rewardflow

from tasks.tracking import registry, store, summaries

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def configured(first: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries of the tests go to the store of the project."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    store.configure(first.home)


def flow_of(project: Project, module: str, function: str) -> subprocess.CompletedProcess[str]:
    """Call a flow function as a deployment does: by its entrypoint, in a process of its own."""
    code = f"from flows.{module} import {function}; print('returned', {function}('tiny'))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=environment(**project.settings()),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_without_a_champion_the_nightly_evaluation_says_so(project: Project, first: Ran) -> None:
    if registry.champion("tiny-policy") is not None:
        pytest.fail("a test before this one left a champion; this one must come first")
    ended = flow_of(project, "evaluate_champion", "evaluate_champion")
    assert ended.returncode != 0
    assert "tiny-policy has no champion yet; `rewardflow run tiny` trains one" in ended.stdout + ended.stderr


def test_the_nightly_evaluation_measures_the_champion_as_the_training_did(project: Project, first: Ran) -> None:
    assert rewardflow(project.folder, "promote", "1", **project.settings()).returncode == 0
    ended = flow_of(project, "evaluate_champion", "evaluate_champion")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    newest = summaries.recent_runs("tiny", 1)[0]
    assert re.match(r"v\d+ champion: sampled ", newest.name) and newest.status == "FINISHED"
    (validated,) = [step for step in summaries.run_summary("tiny", newest.run_id).steps if step.name == "validate"]
    assert summaries.was_reused(validated)  # its key is the one of the training
    champion = registry.champion("tiny-policy")
    assert champion is not None
    judged = store.client().get_run(registry.facts_of(champion)["rewardflow.evaluation_run"]).data.metrics
    for metric in ("eval/sampled_accuracy", "eval/greedy_accuracy", "eval/tokens"):
        assert newest.metrics[metric] == judged[metric]


def test_the_weekly_refresh_pushes_the_version_that_is_pinned(
    project: Project, first: Ran, locked: dict[str, str]
) -> None:
    ended = flow_of(project, "refresh_data", "refresh_data")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    digest = locked["data/prepared/arithmetic"]
    assert f"returned {digest}" in ended.stdout
    pushed = [file.parent.name + file.name for file in project.folder.rglob("dvc-remote/files/md5/*/*")]
    assert digest in pushed
