"""The machine's peaks: the speed of the fastest matrix product measured on it, and the most memory in use."""

from __future__ import annotations

import resource
import statistics
import sys
import time
from functools import lru_cache

import torch

TILE = 512
"""Side of the square of random numbers that matrices are tiled with."""
SIZES = {"cpu": (512, 1024, 2048), "cuda": (4096, 8192)}
"""Widths of the square matrices that are tried; which is fastest depends on caches and cores."""
BLOCKS = 3
"""A block of tries gives its best one; the median of the blocks is the peak, so that one odd reading does not count."""


def matmul_peak(device: torch.device, dtype: torch.dtype, seconds: float = 0.3) -> float:
    """Measure the operations a second of the fastest square matrix product on `device`, for about `seconds`.

    Measured once in a process for each device, dtype and number of threads. Other work on the machine at that moment
    lowers it.
    """
    return _measured(str(device), dtype, torch.get_num_threads(), seconds)


def peak_memory(device: torch.device) -> float:
    """Return the most memory used so far, GiB: by torch on a GPU; by the process, at any time of its life, on a CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**30
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return held / (2**30 if sys.platform == "darwin" else 2**20)


@lru_cache(maxsize=8)
def _measured(name: str, dtype: torch.dtype, threads: int, seconds: float) -> float:
    device = torch.device(name)
    sizes = SIZES.get(device.type, SIZES["cpu"])
    # Random numbers: a GPU multiplies constant ones faster, since fewer bits change and it clocks higher. They are from
    # a generator of their own: a run may draw from the global one.
    tile = torch.randn(TILE, TILE, generator=torch.Generator().manual_seed(0)).to(device, dtype)
    pairs = [(tile.repeat(n // TILE, n // TILE), torch.empty(n, n, device=device, dtype=dtype)) for n in sizes]
    for numbers, product in pairs:
        torch.mm(numbers, numbers, out=product)
    best = []
    for _ in range(BLOCKS):
        fastest = 0.0
        until = time.perf_counter() + seconds / BLOCKS
        while fastest == 0.0 or time.perf_counter() < until:
            fastest = max(fastest, *(_speed(numbers, product) for numbers, product in pairs))
        best.append(fastest)
    return statistics.median(best)


def _speed(numbers: torch.Tensor, product: torch.Tensor) -> float:
    times = 4 if numbers.is_cuda else 1  # several in a row hide the start of each
    _settle(numbers)
    started = time.perf_counter()
    for _ in range(times):
        torch.mm(numbers, numbers, out=product)
    _settle(numbers)
    return float(times * 2 * numbers.shape[0] ** 3) / (time.perf_counter() - started)


def _settle(numbers: torch.Tensor) -> None:
    if numbers.is_cuda:
        torch.cuda.synchronize(numbers.device)
