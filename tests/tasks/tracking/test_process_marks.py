"""Marks of processes: a process is judged dead only where it ran, because host names and process ids are not unique."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tasks.tracking import lock, process, runs, store, tags

ROOT = Path(__file__).resolve().parents[3]
OPEN = """
import sys
from pathlib import Path
from tasks.tracking import runs, store
store.configure(Path(sys.argv[1]))
print(runs.open_flow_run("e", "in a container"), flush=True)
sys.stdin.read()
"""


@pytest.mark.rotating(of=6)
def test_a_live_run_of_another_container_of_this_host_name_is_not_ended(home: Path):
    """The run's process has a namespace of its own, as in a container. From here, its id does not show it."""
    if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
        pytest.skip("no process namespace can be made here")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("MLFLOW_TRACKING_URI", None)
    child = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", sys.executable, "-c", OPEN, str(home)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        run_id = child.stdout.readline().strip()
        marks = store.client().get_run(run_id).data.tags
        assert marks[tags.HOST] == process.mark()[tags.HOST]
        assert runs.sweep_dead_runs("e") == [] and child.poll() is None
        assert store.client().get_run(run_id).info.status == "RUNNING"
    finally:
        child.communicate()


def elsewhere(machine: str = "", boot: str = "", namespace: str = "") -> str:
    """Return the place of this process with some parts changed."""
    return " ".join(
        given or own for given, own in zip((machine, boot, namespace), process.place().split(), strict=True)
    )


GONE = {**process.mark(), tags.STARTED: "1.0"}


@pytest.mark.parametrize(
    "place",
    [
        elsewhere(namespace="pid:[1]"),
        elsewhere(boot="another"),
        elsewhere(machine="another", boot="another", namespace="pid:[4026531836]"),
        elsewhere(boot="another", namespace="pid:[1]"),
        "",
        "something else altogether, of a later version",
    ],
)
def test_nobody_is_surely_dead_in_another_place(place: str, monkeypatch: pytest.MonkeyPatch):
    assert process.surely_dead(GONE)
    in_a_container = elsewhere(namespace="pid:[2]")
    monkeypatch.setattr(process, "place", lambda: in_a_container)
    assert not process.surely_dead({**GONE, tags.PLACE: place})


@pytest.mark.parametrize(("machine", "dead"), [("m", True), ("another", False), ("-", False)])
def test_before_a_restart_of_this_very_machine_all_are_dead(machine: str, dead: bool, monkeypatch: pytest.MonkeyPatch):
    here = "{} now pid:[4026531836]"
    monkeypatch.setattr(process, "place", lambda: here.format("m" if machine != "-" else "-"))
    assert process.surely_dead({**process.mark(), tags.PLACE: f"{machine} before pid:[4026531836]"}) is dead


def test_marks_of_earlier_versions_are_judged_by_the_host_alone():
    earlier = {key: value for key, value in GONE.items() if key != tags.PLACE}
    assert process.surely_dead(earlier) and not process.surely_dead({**earlier, tags.HOST: "another"})


def test_a_run_and_a_lock_say_where_their_process_is(home: Path):
    assert store.client().get_run(runs.open_flow_run("e", "n")).data.tags[tags.PLACE] == process.place()
    with lock.registry_lock("policy") as lease:
        there = store.client().get_registered_model(lease.name).tags
    assert there[tags.PLACE] == process.place()
    assert len(process.place().split()) == 3
