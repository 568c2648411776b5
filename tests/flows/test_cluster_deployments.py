"""Test of deploy/deployments.yaml on a real Prefect server, with the command of docs/deploy.md."""

import os
import shlex
import subprocess
import sys

import pytest
import yaml
from running import ROOT, Pair, ask

POOL = "rewardflow-gpu"


@pytest.mark.thorough
def test_the_guides_command_makes_the_deployments_in_the_pool_of_the_worker(servers: Pair) -> None:
    def prefect(*words: str) -> None:
        command = [sys.executable, "-m", "prefect", *words]
        known = {**os.environ, "PREFECT_API_URL": f"{servers.prefect}/api", "REWARDFLOW_HOME": str(servers.home)}
        done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    (line,) = [
        line.strip()
        for line in (ROOT / "docs" / "deploy.md").read_text().splitlines()
        if line.strip().startswith("prefect ") and " deploy " in line
    ]
    prefect("work-pool", "create", POOL, "--type", "process")  # as the worker does when it starts
    prefect(*shlex.split(line)[1:])
    made = {
        row["name"]: row
        for row in ask(f"{servers.prefect}/api/deployments/filter", {})
        if row["work_pool_name"] == POOL
    }
    content = yaml.safe_load((ROOT / "deploy" / "deployments.yaml").read_text())
    assert set(made) == {deployment["name"] for deployment in content["deployments"]}
    for deployment in content["deployments"]:
        row = made[deployment["name"]]
        assert row["entrypoint"] == deployment["entrypoint"]
        assert row["parameters"] == deployment["parameters"]
        assert row["job_variables"] == deployment["work_pool"]["job_variables"]
        assert row["pull_steps"] == content["pull"]
        assert row["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
        assert [each["schedule"]["cron"] for each in row["schedules"]] == [deployment["schedules"][0]["cron"]]
        form = row["parameter_openapi_schema"]["properties"]
        assert {"arithmetic", "rloo"} <= set(form["recipe"]["enum"]), "the form offers recipes by name"
        assert form["recipe"]["description"] and form["overrides"]["description"]
