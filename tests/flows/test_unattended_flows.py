"""What must be true of the flows that run by themselves: the champion measured again, the data refreshed."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project, Ran, environment

from tasks.tracking import registry, store, summaries

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("configured")]


def flow_of(project: Project, module: str, function: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Call a flow function as a deployment does: by its entrypoint, in a process of its own."""
    code = f"from flows.{module} import {function}; print('returned', {function}('tiny'))"
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=environment(**project.settings(home)),
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.thorough
def test_without_a_champion_the_nightly_evaluation_says_so(
    project: Project, tmp_path: Path, new_store: Callable[[Path], Path]
) -> None:
    new_store(tmp_path)
    ended = flow_of(project, "evaluate_champion", "evaluate_champion", tmp_path)
    assert ended.returncode != 0
    assert "tiny-policy has no champion yet; `rewardflow run tiny` trains one" in ended.stdout + ended.stderr


@pytest.mark.rotating(of=3, together="nightly evaluation")
def test_the_nightly_evaluation_measures_the_champion_as_the_training_did(
    project: Project, first: Ran, tmp_path: Path
) -> None:
    """In a copy of the state folder: in the project's there is no champion, for the tests of its runs."""
    home = project.copy_home(tmp_path / "home")
    assert project.ask("promote", "1", home=home)[0] == 0
    ended = flow_of(project, "evaluate_champion", "evaluate_champion", home)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    store.configure(home)
    newest = summaries.recent_runs("tiny", 1)[0]
    assert re.match(r"v\d+ champion: sampled ", newest.name) and newest.status == "FINISHED"
    (validated,) = [step for step in summaries.run_summary("tiny", newest.run_id).steps if step.name == "validate"]
    assert summaries.was_reused(validated)  # its key is the one of the training
    champion = registry.champion("tiny-policy")
    assert champion is not None
    judged = store.client().get_run(registry.facts_of(champion)["rewardflow.evaluation_run"]).data.metrics
    for metric in ("eval/sampled_accuracy", "eval/greedy_accuracy", "eval/tokens"):
        assert newest.metrics[metric] == judged[metric]


@pytest.mark.thorough
def test_the_weekly_refresh_pushes_the_version_that_is_pinned(
    project: Project, first: Ran, locked: dict[str, str]
) -> None:
    ended = flow_of(project, "refresh_data", "refresh_data")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    digest = locked["data/prepared/arithmetic"]
    assert f"returned {digest}" in ended.stdout
    pushed = [file.parent.name + file.name for file in project.folder.rglob("dvc-remote/files/md5/*/*")]
    assert digest in pushed
