"""An update of GRPO if sharing prompts helps little, or lengths differ much: ours against a plain padded loop.

    unshared     prompt 64, completion 320: the prompt is a seventh of a padded loop's work
    heavy_tail   prompt 64, completions of 24 tokens and more, a Pareto tail up to 1,024: a padded batch is as long as
                 its longest completion

Both sides have the same model, precision, completions and objective, and take turns, each in a process of its own. The
padded loop (`benchmarks.speed.padded`) is run at each of a few micro-batches, and the fastest is measured; its
completions come in the order in which they were drawn, as a trainer's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest
from benchmarks.shared.batches import Batch, alternating, tail
from benchmarks.shared.learners import grpo_update, learner_of, schedule, scored_of
from benchmarks.shared.materials import VOCABULARY, learner_precision, llama
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from benchmarks.speed.padded import PaddedLoop


@dataclass(frozen=True)
class PaddedStepShape(Batch):
    """Sizes of one update."""

    at_least: float
    what: str


SHAPES = {
    "unshared": PaddedStepShape(64, 8, (320,) * 32, 1.3, "update, prompt 64, completion 320, group 8 x 4"),
    "heavy_tail": PaddedStepShape(
        64, 16, tail(64, shortest=24, longest=1024), 3.5, "update, prompt 64, completions 24 to 1,024, group 16 x 4"
    ),
}
QUICK = {
    "unshared": PaddedStepShape(8, 4, (16,) * 8, 1.3, "update, quick"),
    "heavy_tail": PaddedStepShape(8, 4, tail(8, shortest=4, longest=48), 3.5, "update, quick"),
}
MICRO_BATCHES = (8, 16, 32)
"""Numbers of parallel completions that the padded loop is tried with; the first is the default of TRL."""


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row for the shape called `name`."""
    shape = (QUICK if settings.quick else SHAPES)[name]
    sides = {
        "ours": StepperProcess(partial(our_stepper, shape)),
        "peer": StepperProcess(partial(padded_stepper, shape, settings.quick)),
    }
    seconds = alternate(sides, warm=settings.warm, repeats=settings.samples)
    reports = {side: stepper.stop() for side, stepper in sides.items()}
    tokens = {"ours": shape.tokens, "trained": sum(shape.lengths)}
    return [
        compare(
            shape.what,
            seconds["ours"],
            seconds["peer"],
            "s",
            shape.at_least,
            smaller_is_better=True,
            against="a plain padded loop",
            details={"tokens": tokens, **reports},
        )
    ]


def our_stepper(shape: PaddedStepShape) -> Made:
    """Make the stepper in our side's own process: `fit_round`, as the loop calls it."""
    policy = llama()
    learner = learner_of(policy, learner_precision(policy))
    scored = scored_of(*shape.ids(), VOCABULARY)

    def run(beat: Beat) -> None:
        while True:
            grpo_update(learner, scored, schedule())
            beat()

    return Stepper(run), {"autocast": str(learner.autocast)}


def padded_stepper(shape: PaddedStepShape, quick: bool) -> Made:
    """Make the stepper in the padded loop's own process, with the fastest of its micro-batches."""
    pairs, advantage = shape.pairs(), alternating(len(shape.lengths))
    policy = llama()
    autocast = learner_precision(policy)
    ways = {
        f"{rows} rows at a time": partial(_padded, pairs, advantage, autocast, rows)
        for rows in (MICRO_BATCHES[:1] if quick else MICRO_BATCHES)
    }
    stepper, report = fastest(ways)
    return stepper, report | {"autocast": str(autocast)}


def _padded(
    pairs: Sequence[tuple[list[int], list[int]]], advantage: Sequence[float], autocast: torch.dtype | None, rows: int
) -> Stepper:
    policy = llama()
    policy.set_attn_implementation("sdpa")
    learner = learner_of(policy, autocast)
    loop = PaddedLoop(policy, learner.optimiser, autocast, rows)

    def run(beat: Beat) -> Any:
        while True:
            loop.update(pairs, advantage)
            beat()

    return Stepper(run)
