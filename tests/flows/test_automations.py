"""Tests of the messages that Prefect's server sends on its own: a real server, in real time, and a real receiver."""

import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest
from running import Pair, ask, end, start_python, wait_for

from flows.schedule.automations import OURS, longest_pause
from tasks.messages.receivers import URLS
from tests.support.message_listener import TOKEN, Listener

FLOW = """
from pathlib import Path
from time import sleep
from prefect import flow

@flow
def stay(recipe: str = "") -> None:
    while not Path("go").exists():
        sleep(0.2)
"""
DEPLOYMENTS = """
deployments:
  - name: every-minute
    entrypoint: stay.py:stay
    schedules: [{cron: "* * * * *"}]
    concurrency_limit: {limit: 1, collision_strategy: CANCEL_NEW}
"""
SERVE = """
import functools
from datetime import timedelta
from pathlib import Path
from flows.schedule import automations
from flows.runtime.environment import state_folder
from flows.schedule.schedule import serve_schedule
automations.create_automations = functools.partial(automations.create_automations, grace=timedelta(seconds=10))
automations.BEATS = 1.2
serve_schedule(Path("prefect.yaml"), state_folder())
"""


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.close()


def ours(servers: Pair) -> dict[str, dict[str, Any]]:
    there = ask(f"{servers.prefect}/api/automations/filter", {})
    return {entry["name"]: entry for entry in there if entry["name"].startswith(OURS)}


def test_a_schedule_is_silent_after_its_longest_pause() -> None:
    friday = datetime(2026, 11, 20, 12, tzinfo=ZoneInfo("UTC"))
    assert longest_pause([("0 1 * * *", "UTC")], friday) == timedelta(days=1)
    assert longest_pause([("0 1 * * 1-5", "UTC")], friday) == timedelta(days=3)
    assert longest_pause([("0 1 * * *", "UTC"), ("0 13 * * *", "UTC")], friday) == timedelta(hours=12)
    assert longest_pause([("0 1 * * *", "Europe/Berlin")], friday) == timedelta(hours=25)  # summer time ends
    assert longest_pause([("0 22 * * 0", "UTC"), ("*/10 * * * *", "UTC")], friday) == timedelta(minutes=10)


@pytest.mark.thorough
def test_a_machine_that_goes_down_is_told_of_by_the_server_alone(
    servers: Pair, listener: Listener, tmp_path: Path
) -> None:
    (tmp_path / "stay.py").write_text(FLOW)
    (tmp_path / "prefect.yaml").write_text(DEPLOYMENTS)
    named = {
        URLS: listener.receiver.url,
        "PREFECT_API_URL": f"{servers.prefect}/api",
        "MLFLOW_TRACKING_URI": servers.mlflow,
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    }
    serving = start_python(f"import os; os.chdir({str(tmp_path)!r})\n{SERVE}", tmp_path, **named)
    try:
        wait_for("the automations", lambda: len(ours(servers)) == 3, serving)
        runs = f"{servers.prefect}/api/flow_runs/filter"
        only = {"flows": {"name": {"any_": ["stay"]}}, "flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
        # The run is requested and does not come from the cron: the events of a run that is scheduled less than five
        # minutes before it begins follow an event that Prefect's scheduler never sends. The server therefore
        # processes them a quarter of an hour late.
        (deployment,) = ask(f"{servers.prefect}/api/deployments/filter", {"flows": only["flows"]})
        ask(f"{servers.prefect}/api/deployments/{deployment['id']}/create_flow_run", {"state": {"type": "SCHEDULED"}})
        (run,) = wait_for("a run", lambda: ask(runs, only), serving)
        beats = {"filter": {"event": {"name": ["prefect.flow-run.heartbeat"]}}}
        wait_for("a heartbeat", lambda: ask(f"{servers.prefect}/api/events/filter", beats)["events"], serving)
    finally:
        assert serving.poll() is None, serving.communicate()[0]
        everything = [psutil.Process(serving.pid), *psutil.Process(serving.pid).children(recursive=True)]
        for process in everything:
            process.send_signal(signal.SIGKILL)
        serving.wait()
    wait_for("the crash", lambda: any(event["kind"] == "stopped" for event in listener.heard))
    wait_for("the silence", lambda: any(event["kind"] == "silent" for event in listener.heard))
    said = {event["kind"]: event for event in listener.heard}
    assert said["stopped"]["text"].startswith(f"{run['name']} of every-minute is Crashed: Its process gave no sign")
    assert said["stopped"]["link"].endswith(run["id"]) and said["stopped"]["link"] in said["stopped"]["text"]
    assert said["silent"]["text"].startswith("every-minute is silent: no run began within 0:01:10")
    assert len(set(listener.ids)) == len(listener.ids)
    for event in said.values():
        assert {"kind", "text", "link", "at", "event_id"} == set(event)
        datetime.fromisoformat(event["at"])
    shown = str(ours(servers)) + str(ask(f"{servers.prefect}/api/block_documents/filter", {}))
    assert TOKEN not in shown
    database = (servers.home / "prefect" / "prefect.db").read_bytes()
    assert TOKEN.encode() not in database

    # If the schedule is served again, there are the same three. If it is ended on purpose, the one for silence rests.
    again = start_python(f"import os; os.chdir({str(tmp_path)!r})\n{SERVE}", tmp_path, **named)
    wait_for("the automations", lambda: "Ctrl-C" in (again.stdout.readline() if again.stdout else ""), again)
    assert len(ours(servers)) == 3
    end(again)
    resting = {name: entry["enabled"] for name, entry in ours(servers).items()}
    assert resting == {f"{OURS}no heartbeat": True, f"{OURS}crashed": True, f"{OURS}every-minute is silent": False}
    command = "import sys; from flows.command_line import main; sys.argv[1:] = ['automations', '--remove']; main()"
    removed = start_python(command, tmp_path, **named)
    assert "removed  rewardflow: crashed" in removed.communicate()[0] and not ours(servers)
