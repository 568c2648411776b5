"""`python -m benchmarks.gpu.checks`: all checks that need a GPU, unattended, within a budget of minutes.

The steps run in the order of importance, each in its own process with its own limit (a step that is ended at its limit
may take `GRACE_SECONDS` more): tests of the device's computations (`pytest --device`), speed and memory of an update
(`benchmarks.gpu`), the main recipe (`benchmarks.curves.main_curve`). A step takes its share of the time that is left,
so that time saved by one is available to the next. A step that fails or runs out of time does not stop the next. In the
folder `--out`:

    tests.log  gpu.log  main_curve.log     all output of a step
    gpu.json  main_curve_DEVICE.json       the measurements so far
    summary.json                           exit status, seconds and last line of each step; written after every step

`--device cpu --tiny` shows on any machine that every step runs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.shared.settings import positive
from models.base.atomic_write import write_file

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("tests", "gpu", "main_curve")
"""Names of the steps, in their order."""
PACKAGES = ("learner", "training", "method", "engines", "policies", "reward_models", "parts/reference")
"""Packages of models/ whose tests check the device's computations."""
TINY_TESTS = ("tests/models/learner/test_reduce.py",)
TINY_RECIPE = ("warm_start.steps=20", "reward_model.fit.epochs=1")
MOST_WORKERS = 12
"""Test processes that run in parallel; each holds a CUDA context of half a GiB."""
LEAST_SECONDS = 20.0
"""A step is not begun with less time left."""
GRACE_SECONDS = 15.0
"""Seconds between the request to stop and the end of a step, in which pytest prints its failures."""
SLACK = 0.2
"""Share of a step's limit that is reserved for its imports and for its work after its own minutes."""
LARGEST_LOG = 8 * 2**20
"""Size of a log, bytes; of a longer log the end is kept."""
SHOWN = 25
"""Number of lines of a step's output that are printed."""


@dataclass(frozen=True)
class CheckStep:
    """One command, run with a limit of seconds."""

    name: str
    """Name of the step and of its log."""
    share: float
    """Share of the time, relative to those of the other steps."""
    command: Callable[[float], list[str]]


@dataclass(frozen=True)
class CheckStepResult:
    """Result of a step."""

    name: str
    status: int | None
    """Exit status; negative: the signal that ended it; None: it was not begun."""
    seconds: float
    limit: float
    timed_out: bool
    line: str
    """Last line of its output, or the reason why it has none."""

    @property
    def passed(self) -> bool:
        """Whether it ended by itself and without an error."""
        return self.status == 0 and not self.timed_out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every step. Returns 0 if all of them passed, else 1."""
    options = parser().parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    chosen = [
        step
        for step in steps(options.device, options.tiny, options.out.resolve())
        if options.only is None or step.name in options.only
    ]
    return run_all(chosen, options.minutes * 60, options.out)


def steps(device: str, tiny: bool, out: Path) -> list[CheckStep]:
    """Return the steps, the most important first."""
    tests = TINY_TESTS if tiny else ("tests/models/base/test_device.py", *(f"tests/models/{name}" for name in PACKAGES))
    suite = ["pytest", "--device", device, *tests, "-m", "not slow and not thorough", "-q", "--no-loadscope-reorder",
             "-n", "1" if tiny else str(min(MOST_WORKERS, os.cpu_count() or 1)), "-p", "no:cacheprovider"]  # fmt: skip
    measured = ["benchmarks.gpu", "--device", device, "--out", str(out / "gpu.json")]
    measured += ["--tiny", "--repeats", "1"] if tiny else []
    curve = ["benchmarks.curves.main_curve", "--device", device, "--out", str(out / f"main_curve_{device}.json")]
    curve += ["--rounds", "1", "--set", *TINY_RECIPE] if tiny else []
    return [
        CheckStep("tests", 4, lambda seconds: python(*suite)),
        CheckStep("gpu", 5, lambda seconds: python(*measured, "--minutes", minutes_within(seconds))),
        CheckStep("main_curve", 3, lambda seconds: python(*curve, "--minutes", minutes_within(seconds))),
    ]


def python(*words: str) -> list[str]:
    """Return the command of a module run by this Python."""
    return [sys.executable, "-m", *words]


def minutes_within(seconds: float) -> str:
    """Return the minutes that a command may be given so that it ends within `seconds`."""
    return f"{seconds * (1 - SLACK) / 60:.2f}"


def limit_of(position: int, every: Sequence[CheckStep], left: float) -> float:
    """Return the seconds that a step may take of those that are left for it and for the later steps."""
    return max(0.0, left) * every[position].share / sum(step.share for step in every[position:])


def run_all(every: Sequence[CheckStep], seconds: float, out: Path) -> int:
    """Run the steps within `seconds`, one after the other. Returns 0 if all of them passed, else 1."""
    deadline = time.monotonic() + seconds
    outcomes: list[CheckStepResult] = []
    for position, step in enumerate(every):
        limit = limit_of(position, every, deadline - time.monotonic())
        outcomes.append(run(step, limit, out))
        passed = len(outcomes) == len(every) and all(outcome.passed for outcome in outcomes)
        summary = {"passed": passed, "seconds": seconds, "steps": [asdict(outcome) for outcome in outcomes]}
        write_file(out / "summary.json", json.dumps(summary, indent=1) + "\n")
    for outcome in outcomes:
        ended = "not begun" if outcome.status is None else "out of time" if outcome.timed_out else str(outcome.status)
        print(f"{outcome.name:<12}{ended:<12}{outcome.seconds:>6.0f} s  {outcome.line}")
    return int(not passed)


def run(step: CheckStep, limit: float, out: Path) -> CheckStepResult:
    """Run one step for `limit` seconds at most; all its output is in NAME.log."""
    if limit < LEAST_SECONDS:
        return CheckStepResult(step.name, None, 0.0, limit, False, f"{limit:.0f} s were left for it")
    command, log = step.command(limit), out / f"{step.name}.log"
    print(f"== {step.name}, {limit:.0f} s: {' '.join(command[1:])}", flush=True)
    began = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
        )  # fmt: skip
        status, timed_out = _ended(process, limit)
    lines = _shortened(log).splitlines()
    print("\n".join(lines[-SHOWN:]), flush=True)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return CheckStepResult(
        step.name, status, round(time.monotonic() - began, 1), round(limit, 1), timed_out, last[:300]
    )


def _ended(process: subprocess.Popen[bytes], limit: float) -> tuple[int, bool]:
    """Wait for a process and stop it after `limit` seconds. Returns its exit status and whether it was stopped. All
    processes that it started are killed."""
    timed_out = False
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait(), timed_out


def _shortened(log: Path) -> str:
    """Return the text of a log; only the end of a log that is too long is kept."""
    if log.stat().st_size > LARGEST_LOG:
        with log.open("rb") as source:
            source.seek(-LARGEST_LOG, os.SEEK_END)
            end = source.read()
        log.write_bytes(end)
    return log.read_text(errors="replace")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks.gpu.checks", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    made.add_argument("--minutes", type=positive, default=12.0, help="of all steps together (default 12)")
    made.add_argument("--out", type=Path, required=True, help="folder of logs and figures")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    made.add_argument("--only", nargs="+", choices=NAMES, metavar="STEP", help=f"of {', '.join(NAMES)} (default all)")
    made.add_argument("--tiny", action="store_true", help="a test file, tiny shapes, one round: shows that it runs")
    return made


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what a shell began behind itself ignores it, as would steps
    sys.exit(main())
