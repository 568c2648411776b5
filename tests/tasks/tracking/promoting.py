"""Processes that work on one registry at the same time. Each prints that it is ready, and then waits for a line."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

PROMOTE = """
import sys, time
from pathlib import Path
from models.base.errors import UserError
from tasks.tracking import aliases, registry, store
store.configure(Path(sys.argv[1]))
read = registry.champion
def read_and_dawdle(name):
    there = read(name)
    time.sleep(1.5)  # without a lock, the other process reads the same champion meanwhile
    return there
registry.champion = read_and_dawdle
print("ready", flush=True)
sys.stdin.readline()
try:
    aliases.promote("policy", int(sys.argv[2]), judged_against=1)
    print("promoted")
except UserError as error:
    print(error)
"""


def started(code: str, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start Python with the arguments `home` and `arguments`, and return the process after it has printed a line.

    It has the MLFLOW_TRACKING_URI of this process.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(home), *arguments],
        cwd=ROOT, env=dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline()
    return process


def promote_at_once(homes: dict[int, Path]) -> tuple[int, str]:
    """Promote each version from a separate process with its state folder. All are judged against version 1.

    Return the version that was promoted, and the output of the process whose promotion was refused.
    """
    processes = {version: started(PROMOTE, home, str(version)) for version, home in homes.items()}
    for process in processes.values():
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {version: process.communicate(timeout=120)[0].strip() for version, process in processes.items()}
    assert [process.returncode for process in processes.values()] == [0] * len(processes)
    (winner,) = [version for version, line in said.items() if line == "promoted"]
    (refused,) = [line for version, line in said.items() if version != winner]
    return winner, refused
