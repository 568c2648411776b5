"""Tests of the trigger: new data start a training through Prefect's server, and data that were used before do not."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from project import Project, flow_of, make_project
from running import ROOT, Pair, ask, end, start_python, wait_for

from flows.schedule import schedule
from flows.schedule.deployments import Deployment, read_deployments
from flows.schedule.new_data import EVENT
from models.base.errors import UserError

SERVE = (
    "from flows.runtime.environment import state_folder; from flows.schedule.schedule import serve_schedule; "
    "from pathlib import Path"
)


@pytest.mark.parametrize("file", ["prefect.yaml", "deploy/deployments.yaml"])
def test_the_projects_own_training_begins_at_new_data_of_its_recipe(file: str) -> None:
    training, *others = yaml.safe_load((ROOT / file).read_text())["deployments"]
    (trigger,) = training["triggers"]
    assert (trigger["expect"], trigger["match"]) == ([EVENT], {"prefect.resource.id": "rewardflow.data.arithmetic"})
    assert not any("triggers" in other for other in others)
    assert (training["parameters"]["recipe"], training["name"]) == ("arithmetic", "nightly-training")


def test_a_wrong_trigger_is_one_clear_line() -> None:
    wrong = Deployment(name="a", entrypoint="flows/train.py:train", triggers=[{"type": "event", "expect": 3}])
    with pytest.raises(UserError, match=r"^prefect\.yaml: a: triggers\.0.*expect.*: Input should be a valid") as caught:
        schedule._to_prefect(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.thorough
def test_new_data_start_a_training_and_the_same_data_none(servers: Pair, tmp_path: Path) -> None:
    folder, home = make_project(tmp_path / "clone"), tmp_path / "home"
    content = yaml.safe_load((folder / "prefect.yaml").read_text())
    (training,) = [entry for entry in content["deployments"] if entry["name"] == "nightly-training"]
    training |= {"name": "at-new-data", "parameters": {"recipe": "tiny", "overrides": []}, "schedules": []}
    (folder / "prefect.yaml").write_text(yaml.safe_dump({"deployments": [training]}))
    assert read_deployments(folder / "prefect.yaml")[0].triggers
    project = Project(folder, servers.prefect)
    settings = {**project.settings(home), "PREFECT_RUNNER_POLL_FREQUENCY": "1", "PYTHONPATH": str(folder)}
    only = {"deployments": {"name": {"any_": ["at-new-data"]}}}

    def refreshed() -> str:
        ended = flow_of(project, "refresh_data", "refresh_data", home)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.splitlines()[-1]

    def trained() -> list[dict[str, Any]]:
        runs = ask(f"{servers.prefect}/api/flow_runs/filter", only)
        done = [run for run in runs if run["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")]
        return done if len(done) == len(runs) else []

    def events() -> int:
        return len(ask(f"{servers.prefect}/api/events/filter", {"filter": {"event": {"name": [EVENT]}}})["events"])

    code = f"import os; os.chdir({str(folder)!r}); {SERVE}; serve_schedule(Path('prefect.yaml'), state_folder())"
    home.mkdir()
    serving = start_python(code, home, **settings)
    try:
        wait_for("the deployment", lambda: ask(f"{servers.prefect}/api/deployments/filter", only), serving)
        digest = refreshed()
        (run,) = wait_for("the training", trained, serving)
        assert run["state"]["type"] == "COMPLETED", run["state"]
        assert (refreshed(), events()) == (digest, 1)
        params = yaml.safe_load((folder / "params.yaml").read_text())
        params["arithmetic"]["seed"] += 1
        (folder / "params.yaml").write_text(yaml.safe_dump(params))
        assert refreshed() != digest
        runs = wait_for("the second training", lambda: len(done := trained()) == 2 and done, serving)
        assert [run["state"]["type"] for run in runs] == ["COMPLETED"] * 2
        assert events() == 2
    finally:
        print(end(serving) if serving.poll() is None else serving.communicate()[0])
