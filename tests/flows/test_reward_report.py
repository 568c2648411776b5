"""A reward model with a bad report stops the run before reinforcement learning; `reward-report` gives the reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mlflow
import pytest
from project import Project, environment
from running import type_in

from tasks.tracking import store

REPORT = "reward_model.report={problems: 8, samples: 4, suffix: 1, tried: 2"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_distrusted_reward_model_stops_the_run_and_the_command_shows_the_same(
    project: Project, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    settings = environment(**project.settings(home))
    asked = f"rewardflow run arithmetic --smoke --set '{REPORT}, least_gain: 1.0}}'"
    ended = type_in([asked], project.folder, **settings)
    assert ended.returncode == 1 and "Traceback" not in ended.stdout + ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    assert "below least_gain 1" in line and "stopped before reinforcement learning" in line

    store.configure(home)
    client = mlflow.MlflowClient()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = {run.info.run_name: run for run in client.search_runs(experiments)}
    assert "reward_report" in runs and "fine_tune" not in runs
    made = runs["reward_report"]
    assert made.data.tags["mlflow.note.content"].startswith("## Can this reward model be trusted?")
    plots = {entry.path for entry in client.list_artifacts(made.info.run_id, "plots")}
    assert plots == {"plots/best_of_n.png", "plots/calibration.png"}
    written = json.loads(Path(client.download_artifacts(made.info.run_id, "report/report.json")).read_text())
    assert len(written["against"]) == 1 and list(written["policies"]) == ["before training"]

    (policy,) = (home / "store" / "warm_start").glob("*/policy")
    asked = (
        f"rewardflow reward-report arithmetic-smoke-reward-model/1 --policy {policy} "
        f"--with arithmetic-smoke-reward-model/1 --set '{REPORT}, least_gain: 1.0}}'"
    )
    ended = type_in([asked], project.folder, **settings)
    assert ended.returncode == 1 and "below least_gain 1" in ended.stdout
    values = dict(line.split() for line in ended.stdout.splitlines() if len(line.split()) == 2)
    metrics = made.data.metrics
    for name in ("pair_accuracy", "best_of_4", "moved/repeated"):
        assert float(values[name]) == pytest.approx(metrics[f"reward_report/{name}"], abs=1e-4)
    assert float(values["agreement_0"]) >= 0.5  # The model is compared with itself; equal scores are ties.

    for words, named in (("nobody/1", "nobody"), ("arithmetic-smoke-reward-model/1 --policy nowhere", "nowhere")):
        ended = type_in([f"rewardflow reward-report {words}"], project.folder, **settings)
        assert ended.returncode == 1 and "Traceback" not in ended.stderr
        assert len(ended.stderr.strip().splitlines()) == 1 and named in ended.stderr
    shutil.rmtree(home, ignore_errors=True)
