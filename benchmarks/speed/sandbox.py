"""Programs a minute that the sandbox judges: the 164 reference solutions of HumanEval with their tests.

The peer is the usual way: a new Python a program, with the tests in the same process and only a time limit around it.
There, nothing is hidden from the program, and nothing is protected from it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.sandbox.sandbox import Program, Sandbox
from models.sandbox.settings import SandboxSettings

WANTED = 3000
"""Target of programs a minute on two cores."""
CORES = 2
DATA = Path(os.environ.get("REWARDFLOW_TEST_DATA", Path(__file__).parents[2] / "../shared/data")) / "humaneval.jsonl"


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row; it misses its target without the problems of HumanEval, or if one is judged wrongly."""
    measured = "HumanEval's reference solutions, judged in the sandbox on 2 cores"
    if not DATA.is_file():
        reason = f"no {DATA.name} at hand (set REWARDFLOW_TEST_DATA to its folder)"
        return [Row(measured, 0.0, None, "programs/min", None, None, False, wanted=f"{WANTED:,}", reason=reason)]
    rows = [json.loads(line) for line in DATA.read_text().splitlines()]
    programs = [
        Program(row["prompt"] + row["canonical_solution"], row["test"], row["entry_point"], row["prompt"])
        for row in rows
    ]
    sandbox = Sandbox(SandboxSettings(workers=CORES, seconds=30, seconds_together=60))
    sandbox.judge(programs[:CORES])  # starts its workers
    ours, peer, passed = [], [], len(programs)
    for _ in range(settings.repeats):
        began = time.perf_counter()
        verdicts = sandbox.judge(programs)
        ours.append(60 * len(programs) / (time.perf_counter() - began))
        passed = min(passed, sum(verdict.outcome == "passed" for verdict in verdicts))
        began = time.perf_counter()
        with ThreadPoolExecutor(CORES) as pool:
            list(pool.map(_alone, programs))
        peer.append(60 * len(programs) / (time.perf_counter() - began))
    layers = sandbox.layers.line
    sandbox.close()
    made = compare(
        measured, ours, peer, "programs/min", None, against="a new Python each, unprotected", wanted=f"{WANTED:,}",
        details={"passed": passed, "programs": len(programs), "layers": layers},
    )  # fmt: skip
    met = made.ours >= WANTED and passed == len(programs)
    short = "" if met else f"{passed} of {len(programs)} pass" if passed < len(programs) else "below the mark"
    return [Row(**{**made.__dict__, "met": met, "reason": short})]


def _alone(program: Program) -> int:
    text = f"{program.source}\n{program.tests}\ncheck({program.entry_point})\n"
    return subprocess.run([sys.executable, "-I", "-S", "-c", text], timeout=60, capture_output=True).returncode
