"""SIGKILL before every single write of a promotion: the same command, given again, completes it exactly once."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nights import nights
from test_gate_promotion import NAME

from tasks.steps.promote import Promotion
from tests.support.fault_table import PROPERTY

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]

ROOT = Path(__file__).resolve().parents[3]
MOST = 80
"""Upper bound of the number of writes in a promotion here."""

# A fork has the imports already. No fork shares a database connection, because the parent opens none.
KILLED = """
import contextlib, io, json, os, shutil, signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
import mlflow, mlflow.transformers
from models.base.errors import UserError
from tasks.gate import approval
from tasks.tracking import aliases, audit, registry, store, tags
from tasks.tracking.verdict_record import read_verdict
from tasks.tracking.verdict_text import verdict_text

first, name, most = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def forked(work):
    # What the child says, and the signal that ended it.
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            said = json.dumps(work())
        except BaseException as error:
            said = json.dumps(f"{type(error).__name__}: {error}")
        os.write(writes, said.encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    return said, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

def approve():
    with contextlib.suppress(UserError):  # it was done: it waits no more
        approval.approve(name, 2, by="Ann", why="samples read")

def until(home, number):
    store.configure(home)
    registry.champion(name)
    left = [number]
    def count(connection, cursor, statement, parameters, context, executemany):
        if statement.lstrip().upper().startswith(("INSERT", "UPDATE", "DELETE")):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
    event.listen(Engine, "before_cursor_execute", count)
    approve()

def state(home):
    store.configure(home)
    approve()
    aliases.record_outside_changes(name)
    info = registry.version_info(name, 2)
    run = store.client().get_run(info.tags[tags.RUN])
    return {
        "champion": registry.champion(name).version,
        "previous": registry.by_alias(name, registry.PREVIOUS).version,
        "audit": [(entry.did, entry.version, entry.before, entry.by, entry.why) for entry in audit.entries(name)],
        "broken": audit.broken(name),
        "history": [line.partition(" version ")[2] for line in aliases.history(name)],
        "decision": info.tags[tags.DECISION],
        "verdict": verdict_text(read_verdict(info)),
        "page": info.description.partition(" (20")[0],
        "run": [run.info.run_name, run.data.tags[tags.RUN_VERDICT]],
        "promoting": registry.model_tags(name).get(tags.PROMOTING, ""),
    }

for number in range(1, most):
    home = first.with_name(f"killed{number}")
    shutil.copytree(first, home)
    _, ended = forked(lambda: until(home, number))
    said, _ = forked(lambda: state(home))
    shutil.rmtree(home)
    print(json.dumps([ended, json.loads(said)]), flush=True)
    if not ended:
        break
"""


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path) -> Callable[..., Promotion]:
    return nights(home, policy_folder, tmp_path)


def test_a_promotion_that_is_killed_before_any_of_its_writes_is_done_once_by_the_same_command(
    night: Callable[..., Promotion], home: Path, record_property: Callable[[str, Any], None]
) -> None:
    night("one")
    assert night("two", approval=True).decision == "waiting"
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, home, NAME, str(MOST)],
        cwd=ROOT,
        env=surroundings | {"GIT_PYTHON_REFRESH": "quiet"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    *killed, (signal, undisturbed) = [json.loads(line) for line in ended.stdout.splitlines()]
    assert signal == 0 and len(killed) > 10 and {number for number, _ in killed} == {9}
    assert undisturbed["champion"] == 2 and undisturbed["previous"] == 1 and undisturbed["broken"] == []
    assert undisturbed["audit"][-1] == ["promoted", 2, 1, "Ann", "approved: samples read"]
    assert undisturbed["verdict"].startswith("promoted: approved by Ann")
    for number, (_, after) in enumerate(killed, 1):
        assert after == undisturbed, number
    row = (f"SIGKILL before each of the {len(killed)} writes of a promotion", "none", "one champion, log whole", "0")
    record_property(PROPERTY, row)
