"""Supervised fine-tuning on mixed lengths, tokens a second: `fit_supervised` against TRL's SFTTrainer with its packing.

Sequences of 16 to 512 tokens, all of whose tokens but the first carry loss on both sides. One update takes about
8,192 tokens: ours the sequences that make them up, TRL's 16 packed rows of 512 (its default strategy `bfd`, and
`wrapped`; the faster is measured). Rates are of real tokens, counted exactly on both sides; the tokenised data set and
TRL's packing of it are made beforehand and not timed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import trl_side
from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest
from benchmarks.shared.learners import OPTIMISER
from benchmarks.shared.materials import learner_precision, llama, save, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings, has_trl
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.policies.build import open_policy

AT_LEAST = 1.5
SHORT = (
    "nothing is shared between these sequences and neither side pads: both do the same matrix products in bf16 at the "
    "speed of the cores, and without matrix units attention costs as much in our blocks as in torch's fused kernel"
)
"""Reason why the target is missed, if it is."""

STEPS = 4
"""Steps of one turn, over which the mixed lengths even out."""


@dataclass(frozen=True)
class SupervisedShape:
    """Sizes of one step."""

    shortest: int = 16
    longest: int = 512
    rows: int = 16
    """Packed rows of `longest` tokens that TRL learns from in one update."""
    distinct: int = 4096

    @property
    def batch(self) -> int:
        """Number of sequences that hold as many tokens on average."""
        return round(self.rows * self.longest / ((self.shortest + self.longest) / 2))


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row."""
    shape = SupervisedShape(shortest=4, longest=32, rows=4, distinct=64) if settings.quick else SupervisedShape()
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        sides = {"ours": StepperProcess(partial(our_stepper, folder, shape))}
        if has_trl():
            sides["peer"] = StepperProcess(partial(their_stepper, folder, shape, settings.quick))
        seconds = alternate(sides, warm=settings.warm, repeats=settings.samples, steps=STEPS)
        reports = {side: stepper.stop() for side, stepper in sides.items()}
    rates = {side: rates_of(values, reports[side].pop("tokens")) for side, values in seconds.items()}
    return [
        compare(
            f"supervised, lengths {shape.shortest} to {shape.longest}, {shape.rows * shape.longest} tokens an update",
            rates["ours"],
            rates.get("peer"),
            "tokens/s",
            AT_LEAST,
            short=SHORT if has_trl() else "TRL is not installed",
            against="TRL SFTTrainer, packing",
            details=reports,
        )
    ]


def rates_of(seconds: list[float], tokens: list[int]) -> list[float]:
    """Compute tokens a second of each turn; the last turns' steps are the last that were counted."""
    timed = tokens[-len(seconds) * STEPS :]
    turns = [sum(timed[at : at + STEPS]) for at in range(0, len(timed), STEPS)]
    return [turn / (taken * STEPS) for turn, taken in zip(turns, seconds, strict=True)]


def sequences_of(shape: SupervisedShape) -> list[list[int]]:
    """Draw random sequences, lengths uniform from shortest to longest."""
    draw = random.Random(4)
    lengths = [draw.randint(shape.shortest, shape.longest) for _ in range(shape.distinct)]
    longest = token_lists(shape.distinct, shape.longest, seed=5)
    return [ids[:length] for ids, length in zip(longest, lengths, strict=True)]


def our_stepper(folder: Path, shape: SupervisedShape) -> Made:
    """Make the stepper in our side's own process."""
    report: dict[str, Any] = {"tokens": []}

    class CountingSequences(Sequences):
        """Sequences that count the tokens of every batch that is taken."""

        def take(self, indices: Any) -> Sequences:
            batch = super().take(indices)
            report["tokens"].append(sum(batch.lengths))
            return Sequences(batch.prompts, batch.completions)

    def run(beat: Beat) -> None:
        ids = sequences_of(shape)
        policy, _ = open_policy(folder)
        autocast = learner_precision(policy)
        report["autocast"] = str(autocast)
        settings = SupervisedSettings(
            steps=100_000,
            batch=shape.batch,
            report_every=1,
            optimiser=OPTIMISER,
        )
        fit_supervised(
            policy,
            CountingSequences([row[:1] for row in ids], [row[1:] for row in ids]),
            settings,
            seed=0,
            autocast=autocast,
            report=lambda step, metrics: beat(),
        )

    return Stepper(run), report


def their_stepper(folder: Path, shape: SupervisedShape, quick: bool) -> Made:
    """Make the stepper in TRL's own process, with the fastest of its settings."""
    counts: list[int] = []  # of all tries; only the last are read, which are those of the run that continues

    def ways(strategy: str) -> dict[str, Callable[[], Stepper]]:
        def with_arguments(given: dict[str, Any]) -> Callable[[Beat], Any]:
            return partial(their_side, folder, shape, strategy, given, counts)

        made = trl_side.candidates(shape.rows, with_arguments, quick=quick)
        # One row at a time, too: with `bfd` TRL joins a micro-batch's rows into one, whose attention grows with them.
        options = {
            f"{'bf16' if bf16 else 'float32'}, 1 row at a time": partial(
                Stepper, with_arguments(trl_side.arguments(shape.rows, bf16=bf16, micro_batch=1))
            )
            for bf16 in (True, False)
        }
        made |= {} if quick else options
        return {f"packing {strategy}, {way}": run for way, run in made.items()}

    stepper, report = fastest(ways("bfd") | ({} if quick else ways("wrapped")))
    return stepper, {**report, "tokens": counts}


def their_side(
    folder: Path, shape: SupervisedShape, strategy: str, arguments: dict[str, Any], counts: list[int], beat: Beat
) -> None:
    """Run TRL's trainer with packing; `counts` takes the real tokens of every update."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTConfig, SFTTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    config = SFTConfig(packing=True, packing_strategy=strategy, max_length=shape.longest, **arguments)
    rows = Dataset.from_dict({"input_ids": sequences_of(shape)})
    trainer = SFTTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    collate = trainer.data_collator
    waiting: list[int] = []

    def counted(examples: list[dict[str, Any]]) -> Any:
        waiting.append(sum(len(example["input_ids"]) for example in examples))
        return collate(examples)

    trainer.data_collator = counted
    micro_batches = arguments["gradient_accumulation_steps"]

    def after() -> None:
        counts.append(sum(waiting[:micro_batches]))  # the loader reads one update ahead
        del waiting[:micro_batches]
        beat()

    trl_side.train(trainer, after)
