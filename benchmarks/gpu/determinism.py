"""Cost of torch's deterministic mode for an update, and whether two runs from one seed then end with the same weights.

cuBLAS is deterministic only if `CUBLAS_WORKSPACE_CONFIG` was set before it was first used: `prepare`. An operation
without a deterministic implementation raises an error, which is then the reason in a row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.gpu.shapes import Packed, Size, label_of
from benchmarks.gpu.timing import NO_TIME, Terms, clear, reason_of, timed
from benchmarks.gpu.updates import our_update
from benchmarks.shared.rows import Row, compare, unmeasured

STEPS = 2
"""Updates of each of the two runs."""


def prepare() -> None:
    """Set the variables needed before CUDA starts: 8 workspaces of 4 MiB, as torch gives cuBLAS on an H100."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def deterministic() -> Iterator[None]:
    """Make operations inside the context deterministic; those that cannot be raise an error."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def determinism_cell(size: Size, batch: Packed, terms: Terms) -> list[Row]:
    """Measure the cost and the sameness, a row each."""
    return [_cost(size, batch, terms), _sameness(size, batch, terms)]


def weights_after(steps: int, size: Size, batch: Packed, device: torch.device) -> list[Tensor]:
    """Return the policy's weights after so many updates, from the seed that every model here is made with."""
    clear(device)
    update = our_update(size, batch, device)
    for _ in range(steps):
        update.step()
    return [weight.detach() for weight in update.model.parameters()]


def _cost(size: Size, batch: Packed, terms: Terms) -> Row:
    measure = label_of(size, f"{batch.what}: update in deterministic mode")
    usual = timed(lambda: our_update(size, batch, terms.device), terms)
    with deterministic():
        strict = timed(lambda: our_update(size, batch, terms.device), terms)
    if strict.failure:
        return unmeasured(measure, "s", strict.failure)
    return compare(
        measure,
        strict.seconds,
        usual.seconds or None,
        "s",
        None,
        smaller_is_better=True,
        short=usual.failure,
        against="the same update as usual",
    )


def _sameness(size: Size, batch: Packed, terms: Terms) -> Row:
    measure = label_of(size, f"{batch.what}: the same bits twice in deterministic mode, after {STEPS} updates")
    if terms.late:
        return unmeasured(measure, "1: yes", NO_TIME)
    try:
        with deterministic():
            first, second = (weights_after(STEPS, size, batch, terms.device) for _ in range(2))
        # As whole numbers: a weight that is not a number equals itself too.
        apart = sum(int((a.view(torch.int32) != b.view(torch.int32)).sum()) for a, b in zip(first, second, strict=True))
    except Exception as error:  # unattended: one that fails leaves the others
        return unmeasured(measure, "1: yes", reason_of(error))
    every = sum(weight.numel() for weight in first)
    return compare(
        measure,
        [float(apart == 0)],
        [1.0],
        "1: yes",
        1.0,
        against="every weight the same to the bit",
        wanted="yes",
        short=f"{apart:,} of {every:,} weights differ",
    )
