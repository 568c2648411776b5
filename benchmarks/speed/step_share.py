"""A whole GRPO step's FLOP/s at prompt 256, generation and update together, against the measured peak of a product.

The step is that of `grpo_256`: 4 prompts, 16 completions of 64 tokens each, our loop with its fastest engine. Only the
necessary work is counted (`models.training.flops`): one forward pass over every prompt and completion to draw them,
every prompt once, and one update on them. The peak is the fastest square product in the learner's precision, measured
in turns with the steps on the same cores.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from benchmarks.shared.alternate import REST, StepperProcess, fastest
from benchmarks.shared.materials import learner_precision, llama, save, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from benchmarks.speed.grpo_step import DISTINCT, ENGINES, SHAPES, GrpoStepShape, our_stepper
from models.training.flops import Group, forward_flops, shapes_of, update_flops
from models.training.peak import matmul_peak

AT_LEAST = 0.3
SHORT = (
    "about half of the step are the 64 decoding passes: each does half a GFLOP, in some hundred calls of small "
    "products whose start costs more than they do; a longer spin of idle threads (GOMP_SPINCOUNT=20000) makes a pass a "
    "quarter faster on an otherwise idle machine, and twice as slow next to other work, so it is not the default"
)
"""Reason why the target is missed, if it is."""


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    shape = GrpoStepShape(32, 8, 4, 2, AT_LEAST) if settings.quick else SHAPES["grpo_256"]
    model = llama()
    precision = learner_precision(model) or torch.float32
    groups = [Group(shape.prompt, (shape.completion,) * shape.group)] * shape.prompts
    work = forward_flops(shapes_of(model), groups) + update_flops(shapes_of(model), groups)
    prompts = token_lists(DISTINCT, shape.prompt, seed=1)
    reached, peaks = [], []
    with tempfile.TemporaryDirectory() as place:
        folder = save(model, word_tokenizer(), Path(place) / "model")
        ours, tried = fastest(
            {
                way: partial(StepperProcess, partial(our_stepper, folder, prompts, shape, engine))
                for way, engine in list(ENGINES.items())[-1 if settings.quick else 0 :]
            }
        )
        ours.advance(settings.warm)
        for turn in range(settings.samples):
            # The peak is cached by the length of the measurement: a new length makes it measure again.
            peaks.append(matmul_peak(torch.device("cpu"), precision, 0.3 + turn * 1e-6) / 1e9)
            time.sleep(REST)
            reached.append(work / ours.advance(1)[0] / 1e9)
        report = ours.stop()
    return [
        compare(
            f"whole GRPO step, prompt {shape.prompt}, completion {shape.completion}, group {shape.group} x "
            f"{shape.prompts}, {str(precision).removeprefix('torch.')}",
            reached,
            peaks,
            "GFLOP/s",
            AT_LEAST,
            short=SHORT,
            against="measured peak of a matrix product",
            wanted="30 %",
            details={"gflop_a_step": work / 1e9, **report, **tried},
        )
    ]
