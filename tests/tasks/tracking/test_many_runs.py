"""Many runs that log to one server at the same time: every value arrives exactly once, in its own run."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from promoting import started

from tests.support.fault_table import PROPERTY

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.faults]

PROCESSES, RUNS_OF_EACH, STEPS = 8, 4, 250
LOG = f"""
import sys, threading
from pathlib import Path
from tasks.tracking import runs, store
from tasks.tracking.metrics import MetricLog
home, first = Path(sys.argv[1]), int(sys.argv[2])
store.configure(home)
numbers = range(first, first + {RUNS_OF_EACH})
opened = {{number: runs.open_flow_run("e", f"run {{number}}") for number in numbers}}
print("ready", flush=True)
sys.stdin.readline()

def work(number, run):
    with MetricLog(run, home / f"{{number}}.jsonl") as log:
        for step in range({STEPS}):
            log(step, {{"reward/total": 1000 * number + step, "kl": step / 2}})
    runs.close_run(run)

threads = [threading.Thread(target=work, args=entry) for entry in opened.items()]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("logged", flush=True)
"""


def test_32_runs_that_log_at_once_lose_no_value(server, tmp_path: Path, record_property) -> None:
    homes = [tmp_path / f"home{number}" for number in range(PROCESSES)]
    processes = [started(LOG, home, str(number * RUNS_OF_EACH)) for number, home in enumerate(homes)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0 and said.strip() == "logged"
    with closing(sqlite3.connect(server.folder / "mlflow.db")) as database:
        logged = database.execute(
            "select name, step, value from metrics join runs using (run_uuid) where key = 'reward/total'"
        ).fetchall()
        halves = database.execute("select count(*) from metrics where key = 'kl'").fetchone()
        ended = database.execute("select count(*) from runs where status = 'FINISHED'").fetchone()
    runs = PROCESSES * RUNS_OF_EACH
    wanted = [(f"run {run}", step, 1000.0 * run + step) for run in range(runs) for step in range(STEPS)]
    assert sorted(logged) == sorted(wanted)
    assert halves == (runs * STEPS,) and ended == (runs,)
    fault = f"{runs} runs that log {STEPS} rounds to one server at once"
    record_property(PROPERTY, (fault, "none", f"all {len(wanted):,} values there", "0"))
