"""`python -m benchmarks`: runs the benchmarks, each in a process of its own, prints a table and writes JSON."""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.shared.quiet import Busy, Watch, require_quiet_now
from benchmarks.shared.rows import Row, read, table, write
from benchmarks.shared.settings import Settings, has_trl

BENCHMARKS = {
    "grpo_32": "benchmarks.speed.grpo_step",
    "grpo_256": "benchmarks.speed.grpo_step",
    "grpo_900": "benchmarks.speed.grpo_step",
    "real_step": "benchmarks.speed.real_step",
    "unshared": "benchmarks.speed.padded_step",
    "heavy_tail": "benchmarks.speed.padded_step",
    "dpo": "benchmarks.speed.preferences",
    "reward_model": "benchmarks.speed.preferences",
    "scoring": "benchmarks.speed.scoring",
    "supervised": "benchmarks.speed.supervised",
    "memory": "benchmarks.speed.memory",
    "deep_memory": "benchmarks.speed.memory",
    "flops": "benchmarks.speed.flops",
    "step_share_of_peak": "benchmarks.speed.step_share",
    "evaluation": "benchmarks.speed.evaluation",
    "overhead": "benchmarks.speed.overhead",
    "checkpoint_stall": "benchmarks.speed.checkpoint_stall",
    "preparing": "benchmarks.speed.preparing",
    "busy_neighbour": "benchmarks.speed.neighbour",
    "commands": "benchmarks.speed.commands",
    "async_rounds": "benchmarks.speed.async_rounds",
    "histories": "benchmarks.speed.episodes",
    "projection": "benchmarks.speed.episodes",
    "episode_pace": "benchmarks.speed.episode_pace",
    "sandbox": "benchmarks.speed.sandbox",
    "verifiers": "benchmarks.speed.verifiers",
}
"""Name and module; the module's `measure(settings, name)` gives the rows."""

RESULTS = Path(__file__).parent / "results"
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
}


def main() -> int:
    """Run the chosen benchmarks. Returns 1 if a benchmark could not be run; a missed target is not a failure."""
    options = parser().parse_args()
    settings = Settings(options.repeats, options.quick)
    out = options.out or (RESULTS / "quick" if options.quick else RESULTS)
    if options.here:
        try:
            run_here(options.here, settings, out, busy=options.busy or options.quick)
        except Busy as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    names = options.only or list(BENCHMARKS)
    if not has_trl():
        print("TRL is not installed (extra `bench`): there will be no peer to compare with.", file=sys.stderr)
    rows: list[Row] = []
    failed = []
    for name in names:
        began = time.perf_counter()
        print(f"== {name}", file=sys.stderr, flush=True)
        command = [
            sys.executable,
            "-m",
            "benchmarks",
            "--here",
            name,
            "--out",
            str(out),
            "--repeats",
            str(options.repeats),
        ]
        chosen = {"--quick": options.quick, "--busy": options.busy}
        flags = [flag for flag, given in chosen.items() if given]
        done = subprocess.run([*command, *flags], env={**QUIET, **os.environ})
        if done.returncode:
            failed.append(name)
            continue
        record = read(out / f"{name}.json")
        rows += record
        print(f"{table(record)}\n   {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    print(table(rows) if rows else "nothing was measured")
    if failed:
        print(f"could not be run: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def run_here(name: str, settings: Settings, out: Path, busy: bool = False) -> None:
    """Run one benchmark in this process.

    Args:
        name: name of the benchmark.
        settings: number of samples, and whether the shapes are tiny.
        out: folder of the JSON files.
        busy: whether results are written even if other processes use the processor.

    Raises:
        Busy: other processes used the processor, and `busy` is false; nothing is written.
    """
    from benchmarks.shared.machine import describe

    if not busy:
        require_quiet_now()
    machine = describe()
    watch = Watch()
    rows = importlib.import_module(BENCHMARKS[name]).measure(settings, name)
    machine["others_cores"] = round(watch.cores() if busy else watch.require_quiet("during the measurement"), 2)
    write(out / f"{name}.json", name, machine, rows, {"repeats": settings.samples, "quick": settings.quick})


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    made.add_argument("--only", action="append", choices=list(BENCHMARKS), metavar="NAME",
                      help=f"one of {', '.join(BENCHMARKS)}; may be given several times")  # fmt: skip
    made.add_argument("--repeats", type=int, default=5, help="samples of each side (default 5, the median is reported)")
    made.add_argument("--quick", action="store_true", help="tiny shapes, one repeat: only shows that everything runs")
    made.add_argument("--busy", action="store_true", help="write results even if other processes are busy")
    made.add_argument("--out", type=Path, help="folder of the JSON files (default benchmarks/results)")
    made.add_argument("--here", choices=list(BENCHMARKS), help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    sys.exit(main())
