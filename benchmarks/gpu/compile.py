"""Savings of compiled layers in an update: the compiled learner next to the eager one."""

from __future__ import annotations

from benchmarks.gpu.shapes import Packed, Size, label_of
from benchmarks.gpu.timing import Terms, timed
from benchmarks.gpu.updates import our_update
from benchmarks.shared.rows import Row, compare, unmeasured

EAGER = "the same update with eager layers"


def compile_cell(size: Size, batch: Packed, terms: Terms) -> list[Row]:
    """Measure rows of speed and memory, compiled and eager."""
    measure = label_of(size, f"{batch.what}: ")
    compiled = timed(lambda: our_update(size, batch, terms.device, compiled=True), terms)
    eager = timed(lambda: our_update(size, batch, terms.device, compiled=False), terms)
    if compiled.failure:
        return [unmeasured(measure + "update with compiled layers", "tokens/s", compiled.failure)]
    tokens = batch.separate_tokens
    return [
        compare(
            measure + "update with compiled layers",
            [tokens / seconds for seconds in compiled.seconds],
            [tokens / seconds for seconds in eager.seconds] or None,
            "tokens/s",
            None,
            against=EAGER,
            short=eager.failure,
        ),
        compare(
            measure + "peak memory with compiled layers",
            [compiled.memory],
            [eager.memory] if eager.memory else None,
            "GiB",
            None,
            smaller_is_better=True,
            against=EAGER,
            short=eager.failure or "only CUDA counts it",
        ),
    ]
