"""Tests of the schedule on a real Prefect server: deployments, overlapping and missed runs, shutdown, wrong files."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from running import ROOT, Pair, ask, end, shell, start_python, wait_for

from flows.schedule import silence
from flows.schedule.deployments import ConcurrencyLimit, read_deployments
from flows.schedule.schedule import CATCH_UP, serve_schedule
from flows.servers.server_record import running_servers
from models.base.errors import UserError
from tasks.compute.gpu_place import limit_name
from tasks.host import clock
from tasks.messages.receivers import URLS
from tests.support.message_listener import Listener

CODE = """
from pathlib import Path
from flows.runtime.environment import state_folder
from flows.schedule.schedule import serve_schedule
home = state_folder()
"""

TOY_FLOW = """
from pathlib import Path
from time import sleep
from prefect import flow

@flow
def wait(recipe: str, overrides: list[str] | None = None) -> str:
    while not Path("go").exists():
        sleep(0.2)
    return recipe
"""
TOY_DEPLOYMENTS = """
deployments:
  - name: nightly
    entrypoint: toy.py:wait
    description: waits for a file
    parameters: {recipe: some.yaml, overrides: [a=1]}
    schedules: [{cron: "0 2 1 1 *", timezone: Europe/Berlin}]
    concurrency_limit: {limit: 1, collision_strategy: CANCEL_NEW}
    work_pool: {name: only-for-prefect-deploy}
  - name: weekly
    entrypoint: toy.py:wait
    schedules: [{cron: "0 3 1 1 0"}, {cron: "0 4 1 1 0"}]
"""


@dataclass(frozen=True)
class Served:
    """A folder with two toy deployments, and the process that serves them."""

    folder: Path
    process: subprocess.Popen[str]


@pytest.fixture(scope="module")
def served(servers: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("toy")
    (folder / "toy.py").write_text(TOY_FLOW)
    (folder / "prefect.yaml").write_text(TOY_DEPLOYMENTS)
    code = f"{CODE}serve_schedule(Path({str(folder)!r}, 'prefect.yaml'), home)"
    process = start_python(code, servers.home, PREFECT_RUNNER_POLL_FREQUENCY="1")  # seconds; 10 by default
    wait_for("the deployments", lambda: len(deployments(servers)) == 2, process)
    yield Served(folder, process)
    if process.poll() is None:
        end(process)


def deployments(servers: Pair) -> dict[str, dict[str, Any]]:
    """Return the deployments of the toy flow by name. Other tests have deployments on the same servers."""
    only = {"flows": {"name": {"any_": ["wait"]}}}
    return {deployment["name"]: deployment for deployment in ask(f"{servers.prefect}/api/deployments/filter", only)}


def start_run(servers: Pair) -> str:
    """Create a run of the nightly toy that is due now, and return its id."""
    create = f"{servers.prefect}/api/deployments/{deployments(servers)['nightly']['id']}/create_flow_run"
    return ask(create, {"state": {"type": "SCHEDULED"}})["id"]


def state_of(servers: Pair, run: str) -> str:
    return ask(f"{servers.prefect}/api/flow_runs/{run}")["state"]["type"]


@pytest.mark.rotating(of=12, together="served schedule")
@pytest.mark.slow
def test_the_yaml_is_what_is_served(servers: Pair, served: Served) -> None:
    nightly, weekly = deployments(servers)["nightly"], deployments(servers)["weekly"]
    (schedule,) = nightly["schedules"]
    assert (schedule["schedule"]["cron"], schedule["schedule"]["timezone"]) == ("0 2 1 1 *", "Europe/Berlin")
    assert schedule["active"] and not nightly["paused"]
    assert nightly["parameters"] == {"recipe": "some.yaml", "overrides": ["a=1"]}
    assert nightly["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    assert nightly["global_concurrency_limit"]["limit"] == 1
    assert sorted(row["schedule"]["cron"] for row in weekly["schedules"]) == ["0 3 1 1 0", "0 4 1 1 0"]
    assert weekly["global_concurrency_limit"] is None


@pytest.mark.rotating(of=6)
@pytest.mark.slow
def test_prefects_server_writes_down_the_runs_that_come_due(servers: Pair) -> None:
    """The server schedules runs by itself. If its packages are incompatible, the only sign of failure is in its log."""
    api = f"{servers.prefect}/api"
    flow = ask(f"{api}/flows/", {"name": "monthly toy"})["id"]
    monthly = {"cron": "0 2 1 * *", "timezone": "UTC"}
    entry = {"name": "monthly", "flow_id": flow, "schedules": [{"schedule": monthly, "active": True}]}
    known = ask(f"{api}/deployments/", entry)["id"]
    only = {"deployments": {"id": {"any_": [known]}}}
    runs = wait_for("its runs", lambda: ask(f"{api}/flow_runs/filter", only))
    assert {(run["auto_scheduled"], run["state"]["type"]) for run in runs} == {(True, "SCHEDULED")}
    assert all("-01T02:00:00" in run["expected_start_time"] for run in runs)


@pytest.mark.rotating(of=12, together="served schedule")
@pytest.mark.slow
def test_one_gpu_slot_exists(servers: Pair, served: Served) -> None:
    limit = wait_for("the limit", lambda: ask(f"{servers.prefect}/api/v2/concurrency_limits/filter", {}))
    assert [row["limit"] for row in limit if row["name"] == limit_name()] == [1]


@pytest.mark.rotating(of=12, together="served schedule")
@pytest.mark.slow
def test_a_run_that_overlaps_the_one_before_is_cancelled(servers: Pair, served: Served) -> None:
    first = start_run(servers)
    wait_for("the first run", lambda: state_of(servers, first) == "RUNNING")
    second = start_run(servers)
    wait_for("the second run's end", lambda: state_of(servers, second) in ("CANCELLED", "COMPLETED", "FAILED"))
    assert state_of(servers, second) == "CANCELLED"
    assert state_of(servers, first) == "RUNNING"
    (served.folder / "go").touch()
    wait_for("the first run's end", lambda: state_of(servers, first) == "COMPLETED")
    (served.folder / "go").unlink()


@pytest.mark.rotating(of=12, together="served schedule")
@pytest.mark.slow
def test_a_second_process_may_not_serve_the_same_schedule(servers: Pair, served: Served) -> None:
    with pytest.raises(UserError, match="being served already"):
        serve_schedule(served.folder / "prefect.yaml", servers.home)


@pytest.mark.rotating(of=12, together="served schedule")
@pytest.mark.slow
def test_ended_it_leaves_no_run_going_and_no_schedule_on_and_the_servers_alone(servers: Pair, served: Served) -> None:
    run = start_run(servers)
    wait_for("the run", lambda: state_of(servers, run) == "RUNNING")
    children = psutil.Process(served.process.pid).children(recursive=True)
    words = end(served.process)
    assert (served.process.returncode, "Traceback" in words) == (0, False), words
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert state_of(servers, run) == "CRASHED"
    assert all(deployment["paused"] for deployment in deployments(servers).values())
    assert set(running_servers(servers.home)) == {"mlflow", "prefect"}


@pytest.mark.rotating(of=6)
def test_prefect_is_not_imported_before_the_servers_address_is_known() -> None:
    """Prefect reads its settings once, at import. If imported earlier, it would start a second, temporary server."""
    code = "import sys, flows.schedule.schedule, flows.cli.schedule; sys.exit('prefect' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_projects_own_schedule_has_three_deployments_that_refuse_overlap() -> None:
    deployments = read_deployments(ROOT / "prefect.yaml")
    names = [deployment.name for deployment in deployments]
    assert names == ["nightly-training", "nightly-evaluation", "weekly-data-refresh"]
    for deployment in deployments:
        assert deployment.concurrency_limit == ConcurrencyLimit(limit=1, collision_strategy="CANCEL_NEW")
        assert len(deployment.schedules) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("deployments: []", "deployments: List should have at least 1 item"),
        ("deployments: [{name: a}]", "deployments.0.entrypoint: Field required"),
        ("deployments: [{name: a, entrypoint: 'gone.py:f'}]", "the entrypoint of a names"),
        ("deployments: [{name: a, entrypoint: 'x.py:f', concurrency_limit: {limit: 0}}]", "concurrency_limit.limit"),
        ("deployments: [", "is not valid YAML"),
        ("- 1", "the file: "),
    ],
)
def test_a_wrong_schedule_is_one_clear_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "prefect.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        read_deployments(tmp_path / "prefect.yaml")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_schedule_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"prefect\.yaml is not there"):
        read_deployments(tmp_path / "prefect.yaml")


WAITING = """
import sys
from pathlib import Path
from tasks.tracking import registry, runs, store, tags
from tasks.tracking.verdict_record import VerdictRecord, store_decision
store.configure(Path(sys.argv[1]))
registry.make_model("looked-policy")
run = runs.open_flow_run("looked", "night")
store.client().create_model_version("looked-policy", "file:///nowhere", run)
record = VerdictRecord(decision="waiting", reason="better")
registry.annotate("looked-policy", 1, {tags.RUN: run, tags.VERDICT_RECORD: record.model_dump_json()})
store_decision(registry.version_info("looked-policy", 1), record.decision)
store.client().set_model_version_tag("looked-policy", "1", "approve", "Ann: samples read")
runs.close_run(run)
"""


@pytest.mark.thorough
@pytest.mark.slow
def test_a_word_on_mlflows_page_is_carried_out_by_the_schedule(servers: Pair, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WAITING, str(servers.home)], cwd=ROOT, env=shell(), check=True)
    (tmp_path / "toy.py").write_text(TOY_FLOW.replace("def wait(", "def look("))
    (tmp_path / "prefect.yaml").write_text("deployments: [{name: looks, entrypoint: 'toy.py:look'}]\n")
    process = start_python(f"{CODE}serve_schedule(Path({str(tmp_path)!r}, 'prefect.yaml'), home)", servers.home)
    asked = f"{servers.mlflow}/api/2.0/mlflow/registered-models/get?name=looked-policy"

    def champion() -> list[str]:
        aliases = ask(asked)["registered_model"].get("aliases", [])
        return [alias["version"] for alias in aliases if alias["alias"] == "champion"]

    try:
        assert wait_for("the champion", champion, process) == ["1"]
    finally:
        end(process)


@pytest.mark.thorough
@pytest.mark.slow
def test_what_was_missed_is_caught_up_by_one_run_where_the_deployment_asks_for_it_and_told(
    servers: Pair, tmp_path: Path
) -> None:
    (tmp_path / "toy.py").write_text(TOY_FLOW.replace("def wait(recipe: str,", "def caught(recipe: str = '',"))
    (tmp_path / "go").touch()
    deployment = "{name: NAME, entrypoint: toy.py:caught, tags: [TAG], schedules: [{cron: '0 1 * * *'}]}"
    entries = [deployment.replace("NAME", name).replace("TAG", tag) for name, tag in (("up", CATCH_UP), ("not", "x"))]
    (tmp_path / "prefect.yaml").write_text(f"deployments: [{', '.join(entries)}]\n")
    listener = Listener()
    days_ago = clock.now() - timedelta(days=3)
    for name in ("up", "not"):
        silence.mark_reported(servers.home, name, [("0 1 * * *", "UTC")], days_ago)
    code = f"{CODE}serve_schedule(Path({str(tmp_path)!r}, 'prefect.yaml'), home)"
    given = {URLS: listener.receiver.url, "PREFECT_RUNNER_POLL_FREQUENCY": "1"}
    process = start_python(code, servers.home, **given)
    only = {"flows": {"name": {"any_": ["caught"]}}}

    def ended() -> list[str]:
        runs = ask(f"{servers.prefect}/api/flow_runs/filter", only)
        return [run["name"] for run in runs if run["state"]["type"] == "COMPLETED"]

    try:
        wait_for("the run that was missed", ended, process)
        messages = wait_for("the messages", lambda: len(listener.heard) == 2 and listener.heard, process)
    finally:
        end(process)
        listener.close()
    assert ended() == ["up, which was missed"]
    assert sorted(event["text"].partition(":")[0] for event in messages) == ["not did not run", "up did not run"]
