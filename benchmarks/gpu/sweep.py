"""`python -m benchmarks.gpu`: the learner's GRPO update on one CUDA device, unattended, in under 8 minutes.

Qwen3-0.6B and 1.7B shapes with random weights, one update each: GRPO without a KL term, AdamW, bf16 autocast over
float32 weights. Batches (`benchmarks.gpu.shapes`): rows of 4k and 16k tokens, a short prompt, heavy-tailed completions,
a long prompt. Measured for each (`benchmarks.gpu.cell`): tokens a second and peak memory, compared with a plain padded
loop of transformers at the micro-batch that is fastest here (`benchmarks.speed.padded`), and with TRL's GRPOTrainer if
that is installed (its loss on the same tokens, no generation); the share of the device's measured bf16 matrix-product
peak; the number of times that the host waits for the device in a step. For the 0.6B shape also RL, SFT and LoRA on the
work of prime-rl's public baselines, compared with its figures of an H100 (`benchmarks.gpu.published`). Sides are
measured one after the other, each alone on the device. Then an engine in the same process (`benchmarks.gpu.engine`),
the cost of deterministic mode (`benchmarks.gpu.determinism`), and a profile of an update of each cell
(`benchmarks.gpu.profile`), cells that miss a goal first.

Tokens are prompt + completion of every completion, as computed by a learner without shared prompts, so that the rates
of both sides mean the same work done. The share of the peak counts only the necessary work (`models.training.flops`),
each prompt once:

    6 * (entries of the matrices but the embedding and the head) * (P + G * C) a group
    + 6 * hidden * vocabulary * (G * C) + 12 * layers * heads * head_dim * (keys that all queries see)

Recomputation does not count. It imports nothing above models/ and needs neither an orchestrator nor vLLM; without vLLM,
transformers is the engine.

A cell that does not fit into memory, refuses or has no time left is a row without figures that gives the reason; the
file is written after every cell. `--only NAME ...` measures some cells, `--minutes` bounds the whole, from the end of
the imports. `--device cpu --tiny` runs every line in about a minute on any machine.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu.cell import cell, update_name
from benchmarks.gpu.compile import compile_cell
from benchmarks.gpu.determinism import determinism_cell, prepare
from benchmarks.gpu.engine import engine_cell
from benchmarks.gpu.profile import lines_of, with_profile
from benchmarks.gpu.published import published_cells
from benchmarks.gpu.shapes import OTHERS, ROWS, SIZES, TINY_OTHERS, TINY_ROWS, TINY_SIZES, Packed, Size
from benchmarks.gpu.timing import Terms, reason_of
from benchmarks.shared.machine import describe
from benchmarks.shared.rows import Row, table, unmeasured, write
from benchmarks.shared.settings import at_least_one, has_trl, not_negative
from models.training.peak import matmul_peak

RESULTS = Path(__file__).parents[1] / "results"
FOR_PROFILES = 0.15
"""Share of the minutes that is reserved for the profiles."""
Cells = Mapping[str, tuple[Size, Packed]]
Steps = Mapping[str, Callable[[Terms, float], list[Row]]]


def main(arguments: list[str] | None = None) -> int:
    """Measure every cell that the time allows. Returns 0 if at least one was measured."""
    options = parser().parse_args(arguments)
    if options.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # models/ opens an engine on the GPU wherever it sees one
    elif not torch.cuda.is_available():
        print("no CUDA device is to be had; --device cpu --tiny shows that everything runs", file=sys.stderr)
        return 2
    prepare()
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    started = time.perf_counter()
    whole = Terms(torch.device(options.device), options.repeats, started + options.minutes * 60)
    terms = replace(whole, deadline=started + options.minutes * 60 * (1 - FOR_PROFILES))
    peak = matmul_peak(whole.device, torch.bfloat16, 1.0)
    machine = describe(measure=False) | {"bf16_peak_tflops": round(peak / 1e12, 2)}
    settings = {"repeats": options.repeats, "minutes": options.minutes, "tiny": options.tiny, "trl": has_trl()}
    rows: list[Row] = []
    chosen = {name: step for name, step in steps(options.tiny).items() if name in (options.only or NAMES)}
    for name, step in chosen.items():
        began = time.perf_counter()
        try:
            new = step(terms, peak)
        except Exception as error:  # unattended: a cell that fails leaves the others
            new = [unmeasured(name, "", reason_of(error))]
        rows += new
        _print_progress(f"{name}\n{table(new)}\n", began)
        # After every cell, so that an interrupted run leaves what it had.
        write(options.out, "gpu", machine, rows, settings)
    print(table(rows), flush=True)
    for name, (size, batch) in by_need(cells(options.tiny), rows).items():
        if name in chosen:
            began = time.perf_counter()
            rows = with_profile(rows, size, batch, whole)
            _print_progress(f"{name}, profile", began)
            write(options.out, "gpu", machine, rows, settings)
    print("\n".join(line for row in rows for line in lines_of(row)))
    print(f"{machine.get('gpu', machine['cpu'])}, measured bf16 peak {peak / 1e12:.1f} TFLOP/s; {options.out}")
    if not has_trl():
        print("TRL is not installed: the plain padded loop is the only peer")
    return int(not any(row.ours for row in rows))


def cells(tiny: bool) -> Cells:
    """Return size and batch by name, the most informative first."""
    small, large = TINY_SIZES if tiny else SIZES
    rows, others = (TINY_ROWS, TINY_OTHERS) if tiny else (ROWS, OTHERS)
    order = [(small, rows), (large, rows), (small, others), (large, others)]
    return {f"{size.name}-{batch.name}": (size, batch) for size, batches in order for batch in batches}


def steps(tiny: bool) -> Steps:
    """Return the measurements by name, in their order: for the large size the other batches and the engine last."""
    every = cells(tiny)
    (small, batch), (large, _) = every["0.6B-4k"], every["1.7B-4k"]
    measurements: dict[str, Callable[[Terms, float], list[Row]]] = {}
    for name, (size, shape) in every.items():
        if name == "1.7B-4k":
            measurements |= published_cells(tiny)
            measurements["compile"] = lambda terms, _: compile_cell(small, every["0.6B-16k"][1], terms)
            measurements["determinism"] = lambda terms, _: determinism_cell(small, batch, terms)
        measurements[name] = partial(cell, size, shape)
    last = [name for name, (size, shape) in every.items() if size is large and shape.name not in ("4k", "16k")]
    measurements["0.6B-engine"] = lambda terms, _: engine_cell(small, batch, terms)
    measurements |= {name: measurements.pop(name) for name in last}
    measurements["1.7B-engine"] = lambda terms, _: engine_cell(large, batch, terms)
    return measurements


def by_need(every: Cells, rows: list[Row]) -> Cells:
    """Sort the cells, those first that miss a goal."""

    def misses(name: str) -> bool:
        begins = update_name(*every[name]).removesuffix("update")
        return any(row.measure.startswith(begins) and row.at_least is not None and not row.met for row in rows)

    return {name: every[name] for name in sorted(every, key=lambda name: not misses(name))}


def _print_progress(what: str, began: float) -> None:
    print(f"{time.perf_counter() - began:.0f} s: {what}", file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    command = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    command.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    command.add_argument("--tiny", action="store_true", help="tiny shapes: only shows that everything runs")
    command.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=f"of {', '.join(NAMES)}")
    command.add_argument("--repeats", type=at_least_one, default=5, help="timed updates of each side (default 5)")
    command.add_argument("--minutes", type=not_negative, default=7.0, help="no cell or update begins after (default 7)")
    command.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="JSON file (default %(default)s)")
    return command


NAMES = tuple(steps(tiny=False))
