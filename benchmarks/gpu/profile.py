"""Profile of one update: the operations that take most of its time, by torch's profiler.

It runs after all timed measurements, because a profiler that has run once may slow later work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.cell import update_name
from benchmarks.gpu.shapes import Packed, Size
from benchmarks.gpu.timing import NO_TIME, WARM, Terms, clear, reason_of, settle
from benchmarks.gpu.updates import our_update
from benchmarks.shared.rows import Row

TOP = 10


@dataclass(frozen=True)
class OperationProfile:
    """One kind of operation of an update."""

    name: str
    seconds: float
    """Own seconds, without the operations that it calls: of the device, on a CPU of the CPU."""
    share: float
    """Share of all operations' seconds."""
    calls: int


def operations_of(step: Callable[[], Any], device: torch.device) -> tuple[list[OperationProfile], float]:
    """Return the operations of one call that take most, and the seconds of all together.

    Raises:
        RuntimeError: the profiler saw no time of the device.
    """
    cuda = device.type == "cuda"
    settle(device)
    with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]) as seen:
        step()
        settle(device)
    # The device's work is in the list twice: by the operation that began it, and by the kernel's own name.
    spent = [
        (event.self_device_time_total if cuda else event.self_cpu_time_total, event.key, event.count)
        for event in seen.key_averages()
        if event.device_type == DeviceType.CPU
    ]
    whole = sum(time for time, _, _ in spent)
    if not whole:
        raise RuntimeError("the profiler saw no time of the device")
    first = sorted(spent, reverse=True)[:TOP]
    return [OperationProfile(name, time / 1e6, time / whole, calls) for time, name, calls in first if time], whole / 1e6


def with_profile(rows: Sequence[Row], size: Size, batch: Packed, terms: Terms) -> list[Row]:
    """Return the rows, with the profile of another update of the cell, or the reason of its absence, in the details of
    its row.

    Args:
        rows: rows of all cells; if none belongs to this cell's update, or it did not run, nothing is profiled.
    """
    name = update_name(size, batch)
    timed = next((row for row in rows if row.measure == name and row.ours), None)
    if timed is None:
        return list(rows)
    seen = {"profile": _profile(size, batch, terms, float(timed.details["ours"]["seconds"]))}
    return [replace(row, details={**row.details, **seen}) if row is timed else row for row in rows]


def lines_of(row: Row) -> list[str]:
    """Format the profile in the row's details as text; empty if there is none."""
    seen: Mapping[str, Any] | None = row.details.get("profile")
    if seen is None:
        return []
    if "failure" in seen:
        return [f"{row.measure}: no profile: {seen['failure']}"]
    head = f"{row.measure}: operations take {seen['seconds']:.3g} s, an update {seen['update_seconds']:.3g} s"
    return [
        head,
        *(
            f"  {operation['share']:6.1%}  {operation['seconds']:.3g} s  {operation['calls']:>7,} calls  "
            f"{operation['name'][:80]}"
            for operation in seen["operations"]
        ),
    ]


def _profile(size: Size, batch: Packed, terms: Terms, seconds: float) -> dict[str, Any]:
    try:
        clear(terms.device)
        if terms.late:
            return {"failure": NO_TIME}
        update = our_update(size, batch, terms.device)
        for _ in range(WARM):
            update.step()
        operations, whole = operations_of(update.step, terms.device)
    except Exception as error:  # unattended: what was timed stays
        return {"failure": reason_of(error)}
    return {"seconds": whole, "update_seconds": seconds, "operations": [vars(operation) for operation in operations]}
