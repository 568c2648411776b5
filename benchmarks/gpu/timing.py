"""Seconds, memory and waits of one kind of update on a device. A failing update gives its reason and stops no other."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.gpu.waits import Waits, waits_of
from models.base.memory import is_out_of_memory
from models.training.peak import peak_memory

WARM = 2
"""Updates before the timed ones: kernels are chosen, moments made, and settings tried that may lack memory."""
NO_TIME = "no time was left"
NO_MEMORY = "out of the device's memory"


@dataclass(frozen=True)
class Terms:
    """Conditions under which all cells are measured."""

    device: torch.device
    repeats: int
    """Timed updates of each side."""
    deadline: float
    """Deadline on the clock of `time.perf_counter`, seconds: nothing begins after it."""

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.deadline


@dataclass(frozen=True)
class Update:
    """A model with all that one optimiser step of it needs."""

    model: PreTrainedModel
    step: Callable[[], Any]
    facts: Callable[[], Mapping[str, Any]]
    """Facts of the last step, as plain data."""


@dataclass(frozen=True)
class Timed:
    """Measurements of an update; empty if it did not run."""

    seconds: tuple[float, ...] = ()
    memory: float = 0.0
    """Most memory that torch held on the device at once, GiB, the model included; zero on a CPU."""
    waits: Waits = field(default_factory=Waits)
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str = ""
    """Reason for the lack of measurements."""
    first: float = 0.0
    """Seconds of the first update; if layers are compiled and were not before, compilation is in this one."""


def timed(make: Callable[[], Update], terms: Terms) -> Timed:
    """Measure the seconds of updates one by one, after some for warming up; then the waits of another one.

    Args:
        make: builds the model; an exception of it or of an update becomes the failure.
        terms: after the deadline no further update begins, but one is timed if any began.
    """
    seconds: list[float] = []
    first = 0.0
    try:
        clear(terms.device)
        if terms.late:
            return Timed(failure=NO_TIME)
        update = make()
        for turn in range(terms.repeats + WARM):
            if seconds and terms.late:
                break
            if turn == WARM:
                # Memory of a warm-up attempt that ran out of it does not belong to the timed updates.
                reset_peak(terms.device)
            spent = seconds_of(update.step, terms.device)
            first = first or spent
            if turn >= WARM:
                seconds.append(spent)
        held = peak_memory(terms.device) if terms.device.type == "cuda" else 0.0
        return Timed(tuple(seconds), held, waits_of(update.step, terms.device), dict(update.facts()), first=first)
    except Exception as error:  # unattended: one that fails leaves the others
        return Timed(failure=reason_of(error))


def seconds_of(step: Callable[[], Any], device: torch.device) -> float:
    """Measure the seconds until the device has done all of a call."""
    settle(device)
    started = time.perf_counter()
    step()
    settle(device)
    return time.perf_counter() - started


def reason_of(error: Exception) -> str:
    """Return why something did not run, in one line."""
    causes = [error, error.__cause__]
    if any(cause is not None and is_out_of_memory(cause) for cause in causes):
        return NO_MEMORY
    first = (str(error).splitlines() or [""])[0]
    return f"does not run: {type(error).__name__}: {first}"[:300]


def clear(device: torch.device) -> None:
    """Free the memory held before."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    reset_peak(device)


def reset_peak(device: torch.device) -> None:
    """Reset the counter of the peak memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def settle(device: torch.device) -> None:
    """Wait until the device has done all its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
