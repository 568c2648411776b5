"""The learner's FLOP/s in bf16 at width 512 and 8 layers, against the measured peak of a bf16 matrix product here.

An update of GRPO as in the loop: 4 prompts of 256 tokens, 8 completions of 128 each, vocabulary 2,048. Only the
necessary work is counted (`models.training.flops`): 6 operations an entry of every matrix for each of P + G * C tokens,
the output projection for completion tokens only, attention 12 * width for every key that a query sees, and no
recomputation. The peak is the fastest square product, measured in turns with the updates on the same cores.
"""

from __future__ import annotations

import time

import torch

from benchmarks.shared.learners import grpo_update, learner_of, schedule, scored_of
from benchmarks.shared.materials import VOCABULARY, llama, token_lists
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from models.training.flops import groups_of, shapes_of, update_flops
from models.training.peak import matmul_peak

AT_LEAST = 0.4
SHORT = ""
"""Reason why the target is missed, if it is."""


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    hidden, layers, prompts, prompt, group, completion = (
        (64, 2, 2, 16, 2, 8) if settings.quick else (512, 8, 4, 256, 8, 128)
    )
    learner = learner_of(llama(hidden=hidden, layers=layers, heads=hidden // 64), torch.bfloat16)
    completions = token_lists(prompts * group, completion, seed=2)
    scored = scored_of(
        token_lists(prompts, prompt, seed=1),
        [completions[at : at + group] for at in range(0, len(completions), group)],
        VOCABULARY,
    )
    work = update_flops(shapes_of(learner.policy), groups_of(scored))
    for _ in range(settings.warm):
        grpo_update(learner, scored, schedule())
    reached, peaks = [], []
    for turn in range(settings.samples):
        # The peak is cached by the length of the measurement: a new length makes it measure again.
        peaks.append(matmul_peak(torch.device("cpu"), torch.bfloat16, 0.3 + turn * 1e-6) / 1e9)
        started = time.perf_counter()
        grpo_update(learner, scored, schedule())
        reached.append(work / (time.perf_counter() - started) / 1e9)
    return [
        compare(
            f"learner, hidden {hidden}, {layers} layers, bf16",
            reached,
            peaks,
            "GFLOP/s",
            AT_LEAST,
            short=SHORT,
            against="measured peak of a bf16 matrix product",
            wanted="40 %",
            details={"gflop_an_update": work / 1e9},
        )
    ]
