"""A GRPO step next to a neighbour: the slowdown by a busy process on one of the cores.

The whole step of `grpo_32`, this project's side only. Four figures are measured in turns, a step each: quiet and next
to a process that never rests, once with the short spin that Rewardflow gives to OpenMP's idle threads
(models/__init__.py) and once with OpenMP's own long one. Each side is a process of its own, because the spin is read
when torch is loaded.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.shared.alternate import REST, Made, StepperProcess
from benchmarks.shared.materials import llama, save, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from benchmarks.speed.grpo_step import DISTINCT, ENGINES, SHAPES, GrpoStepShape, our_stepper

SLOWER_AT_MOST = 2.5
COSTS_AT_MOST = 0.05
SPIN = "GOMP_SPINCOUNT"
OPENMP_OWN = "300000"
"""Spin count of libgomp if none is set."""


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure two rows: next to the neighbour against quiet, and the cost of the short spin on a quiet machine."""
    shape = SHAPES["grpo_32"]
    if settings.quick:
        shape = GrpoStepShape(4, 8, 4, 2, shape.at_least)
    prompts = token_lists(DISTINCT, shape.prompt, seed=1)
    seconds: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        sides = {
            spin: _side(spin, partial(our_stepper, folder, prompts, shape, ENGINES["transformers"]))
            for spin in (os.environ[SPIN], OPENMP_OWN)
        }
        for side in sides.values():
            side.advance(settings.warm)
        for _ in range(settings.samples):
            for busy in (False, True):
                with neighbour() if busy else _no_neighbour():
                    for spin, side in sides.items():
                        time.sleep(REST)
                        seconds.setdefault((spin, busy), []).extend(side.advance(1))
        for side in sides.values():
            side.stop()
    short, long = sides
    details = {
        "spin_count": short,
        "openmp_default_quiet_s": statistics.median(seconds[long, False]),
        "openmp_default_busy_s": statistics.median(seconds[long, True]),
    }
    return [
        compare(
            "GRPO step next to a busy neighbour, against the quiet step",
            seconds[short, True],
            seconds[short, False],
            "s",
            1 / SLOWER_AT_MOST,
            smaller_is_better=True,
            against="the same step on a quiet machine",
            wanted=f"at most {SLOWER_AT_MOST} times slower",
            details=details,
        ),
        compare(
            "quiet GRPO step with the short spin, against OpenMP's own",
            seconds[short, False],
            seconds[long, False],
            "s",
            1 / (1 + COSTS_AT_MOST),
            smaller_is_better=True,
            against="OpenMP's default spin",
            wanted=f"at most {COSTS_AT_MOST:.0%} slower",
            short="a decoding pass is some hundred products of microseconds, and a thread that sleeps between two of "
            "them wakes late; a longer spin costs more next to a neighbour than it saves here",
            details=details,
        ),
    ]


def _side(spin: str, make: Callable[[], Made]) -> StepperProcess:
    """Make a side whose process is started with this spin, and with no other policy of waiting."""
    before = {name: os.environ.pop(name, None) for name in (SPIN, "OMP_WAIT_POLICY")}
    os.environ[SPIN] = spin
    try:
        return StepperProcess(make)
    finally:
        del os.environ[SPIN]
        os.environ.update({name: value for name, value in before.items() if value is not None})


@contextmanager
def neighbour() -> Iterator[int]:
    """Keep one core busy by a process until the end. Yields its id."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(REST)
        yield process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def _no_neighbour() -> Iterator[None]:
    yield
