"""Test of a deployment's form in Prefect: it lists the recipes, and a run with a wrong override fails in one line."""

import urllib.error
from pathlib import Path
from typing import Any

import pytest
from project import make_project
from running import Pair, ask, end, start_python, wait_for

CODE = """
import os, sys
from pathlib import Path
os.chdir(sys.path[0])
from flows.runtime.environment import state_folder
from flows.schedule.schedule import serve_schedule
serve_schedule(Path("prefect.yaml"), state_folder())
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_the_form_offers_recipes_and_a_wrong_override_is_one_line(servers: Pair, tmp_path: Path) -> None:
    clone = make_project(tmp_path / "clone")
    process = start_python(
        f"import sys; sys.path.insert(0, {str(clone)!r}){CODE}",
        servers.home,
        PREFECT_RUNNER_POLL_FREQUENCY="1",
        PYTHONPATH=str(clone),
    )

    def deployment() -> dict[str, Any] | None:
        rows = ask(
            f"{servers.prefect}/api/deployments/filter", {"deployments": {"name": {"any_": ["weekly-data-refresh"]}}}
        )
        return next((row for row in rows if not row["paused"]), None)

    try:
        served = wait_for("the deployments", deployment, process)
        form = served["parameter_openapi_schema"]["properties"]
        assert {"arithmetic", "tiny", "rloo"} <= set(form["recipe"]["enum"])
        create = f"{servers.prefect}/api/deployments/{served['id']}/create_flow_run"
        due = {"state": {"type": "SCHEDULED"}}
        with pytest.raises(urllib.error.HTTPError, match="409"):
            ask(create, due | {"parameters": {"recipe": "arithmetc", "overrides": []}})
        run = ask(create, due | {"parameters": {"recipe": "tiny", "overrides": ["schedule.rouns=3"]}})["id"]
        page = f"{servers.prefect}/api/flow_runs/{run}"
        wait_for("the end", lambda: ask(page)["state"]["type"] == "FAILED", process)
        state = ask(page)["state"]
    finally:
        end(process)
    assert "schedule.rouns" in state["message"] and "\n" not in state["message"].strip()
