"""Cost of a checkpoint for the training: seconds that the loop stops for each GiB, and time lost in the background.

A model of some 85 million weights with AdamW's moments, one GiB, is saved between steps of plain matrix products that
keep all cores busy, as the loop does. It is saved in the background (`models.policies.checkpoint_writer`) and
synchronously, in turns. The row is the time of the call; `slower` in the details is the additional time of all steps
until the file was on the disk, relative to undisturbed steps, in seconds a GiB: writing and hashing need a core for a
while.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.policies.checkpoint import state_of, write_checkpoint
from models.policies.checkpoint_writer import CheckpointWriter

AT_MOST = 0.3
"""Largest target of the stop, seconds a GiB."""
GIB = 2**30


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row; `ours` and `peer` are seconds a GiB of the two calls."""
    width, repeats = (512, 2) if settings.quick else (3072, settings.repeats)
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(9)))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    sum(parameter.sum() for parameter in model.parameters()).backward()  # type: ignore[union-attr]
    optimiser.step()
    modules, moments, updates = {"policy": model}, {"policy": optimiser}, {"policy": 1}
    size = (
        sum(v.numel() * v.element_size() for part in state_of(modules, moments).values() for v in part.values()) / GIB
    )
    product = torch.randn(width, width)

    def step() -> float:
        began = time.perf_counter()
        for _ in range(4):
            product @ product
        return time.perf_counter() - began

    held: list[float] = []
    at_once: list[float] = []
    slower: list[float] = []
    with tempfile.TemporaryDirectory() as place, CheckpointWriter(Path(place) / "behind") as writer:
        writer.save(0, modules, moments, updates)  # the first allocates memory, which later ones use again
        writer.wait()
        for number in range(1, repeats + 1):
            usual = statistics.median(step() for _ in range(5))
            began = time.perf_counter()
            writer.save(number, modules, moments, updates)
            held.append((time.perf_counter() - began) / size)
            lost = 0.0
            while writer.writing:
                lost += step() - usual
            slower.append(lost / size)
            began = time.perf_counter()
            write_checkpoint(Path(place) / "at_once", number, state_of(modules, moments), updates)
            at_once.append((time.perf_counter() - began) / size)
    return [
        compare(
            "seconds that the loop stands still for a checkpoint, a GiB",
            held,
            at_once,
            "s/GiB",
            statistics.median(at_once) / AT_MOST,
            smaller_is_better=True,
            against="the same written at once",
            wanted=f"at most {AT_MOST} s/GiB",
            short="copying a GiB takes this machine longer",
            details={"gib": round(size, 2), "slower": slower},
        )
    ]
