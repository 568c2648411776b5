"""A whole GRPO step, generate + score + learn (+ hand over): this project's `run_loop` against TRL's GRPOTrainer.

Both start from one model folder and see the same prompts; every completion has exactly the given length (the model
never draws its end token); one update a step on all completions, loss over tokens, advantage over the group, no
KL term, one cheap reward; AdamW. Ours is the loop as the pipeline runs it, its check of the engine after
every hand-over included. TRL generates with transformers (its vLLM mode does not run on a CPU).
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.shared import trl_side
from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest
from benchmarks.shared.learners import schedule
from benchmarks.shared.materials import llama, save, texts, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings, has_trl
from models.base.ranks import ALONE
from models.engines.engine import Engine, EngineSettings
from models.engines.open_engine import open_engine
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.reference.frozen import NoReference
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer
from models.training.train import Training, TrainingFolders, open_training
from models.training.watchers import Watchers

SHORT = dict.fromkeys(
    ("grpo_32", "grpo_256", "grpo_900"),
    "about half of our step are the 64 decoding passes (details: split), 6 to 10 ms each here in vLLM and in our own "
    "engine alike, which neither packing nor shared prompts shorten; the update is near what these cores can do in "
    "bf16 (the benchmark `flops`), and TRL, too, is given bf16 and its fastest batch",
)
"""Reason why a shape misses its target, if it does."""

ENGINES = {
    "vLLM": EngineSettings(name="vllm"),
    "vLLM, compiled": EngineSettings(name="vllm", compile=True),
    "transformers": EngineSettings(name="transformers"),
}
"""The engines that a recipe can name; like TRL's settings each is tried, and the fastest is measured."""
DISTINCT = 64
"""Number of different prompts."""
Write = Callable[[Any, Sequence[Sequence[int]]], list[str]]
"""Tokenizer and prompts -> texts that the tokenizer reads back as those prompts."""


@dataclass(frozen=True)
class GrpoStepShape:
    """Sizes of one step."""

    prompt: int
    completion: int
    group: int
    prompts: int
    at_least: float


SHAPES = {
    "grpo_32": GrpoStepShape(prompt=32, completion=64, group=8, prompts=8, at_least=3.0),
    "grpo_256": GrpoStepShape(prompt=256, completion=64, group=16, prompts=4, at_least=10.0),
    "grpo_900": GrpoStepShape(prompt=900, completion=64, group=16, prompts=2, at_least=25.0),
}


class EvenShare(Reward):
    """Share of even token ids: costs nothing and spreads in every group."""

    name = "even_share"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor([even_share(rollout.completion) for rollout in rollouts])


def even_share(ids: Sequence[int]) -> float:
    """Compute the share of even token ids, between 0 and 1."""
    return sum(token % 2 == 0 for token in ids) / len(ids)


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure one row for the shape called `name`."""
    shape = SHAPES[name]
    if settings.quick:
        shape = GrpoStepShape(shape.prompt // 8, 8, 4, 2, shape.at_least)
    prompts = token_lists(DISTINCT, shape.prompt, seed=1)
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        ours, tried = fastest(
            {
                way: partial(StepperProcess, partial(our_stepper, folder, prompts, shape, engine))
                for way, engine in list(ENGINES.items())[: 1 if settings.quick else None]
            }
        )
        sides = {"ours": ours}
        if has_trl():
            sides["peer"] = StepperProcess(partial(their_stepper, folder, prompts, shape, settings.quick))
        seconds = alternate(sides, warm=settings.warm, repeats=settings.samples)
        reports = {side: stepper.stop() for side, stepper in sides.items()}
    reports["ours"] |= tried
    timed = reports["ours"].pop("rounds")[-settings.samples :]
    split = {part: statistics.median(step[part] for step in timed) for part in timed[0] if part.startswith("seconds/")}
    return [
        compare(
            f"GRPO step, prompt {shape.prompt}, completion {shape.completion}, group {shape.group} x {shape.prompts}",
            seconds["ours"],
            seconds.get("peer"),
            "s",
            shape.at_least,
            smaller_is_better=True,
            short=SHORT.get(name, "") if has_trl() else "TRL is not installed",
            against="TRL GRPOTrainer",
            details={"split": split, **reports},
        )
    ]


def our_stepper(folder: Path, prompts: Sequence[Sequence[int]], shape: GrpoStepShape, settings: EngineSettings) -> Made:
    """Make the stepper in our side's own process."""
    report: dict[str, Any] = {"rounds": []}
    return Stepper(our_side(folder, prompts, shape, settings, report)), report


def their_stepper(folder: Path, prompts: Sequence[Sequence[int]], shape: GrpoStepShape, quick: bool) -> Made:
    """Make the stepper in TRL's own process, with the fastest of its settings."""
    batch = shape.group * shape.prompts
    return fastest(trl_side.candidates(batch, lambda given: their_side(folder, prompts, shape, given), quick=quick))


def our_side(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    shape: GrpoStepShape,
    settings: EngineSettings,
    report: dict[str, Any],
    write: Write = texts,
    token_budget: int = ScheduleSettings.token_budget,
) -> Callable[[Beat], None]:
    """Run the pipeline's loop, with the engine and the optimiser that its task would open.

    Args:
        token_budget: most tokens of a packed row in the update.
    """

    def run(beat: Beat) -> None:
        def ended(round_number: int, metrics: dict[str, float]) -> None:
            report["rounds"].append(metrics)
            beat()

        tokenizer = load_tokenizer(folder)
        problems = [
            Problem(str(number), text, tokens=tuple(ids))
            for number, (ids, text) in enumerate(zip(prompts, write(tokenizer, prompts), strict=True))
        ]
        source: Any = Sample(prompts=shape.prompts, group_size=shape.group, max_tokens=shape.completion)

        def engine(autocast: torch.dtype | None) -> AbstractContextManager[Engine]:
            report["autocast"] = str(autocast)
            ends, longest = ends_of_folder(folder), shape.prompt + shape.completion
            dtype = autocast or torch.float32
            return closing(open_engine(folder, settings, longest=longest, end=ends, seed=0, dtype=dtype))

        training = Training(
            seed=0,
            slots=Slots(source, [EvenShare()], [Everything()], GroupRelative(), Grpo(kl=0.0), NoReference()),
            schedule=schedule(token_budget=token_budget),
            start=folder,
            problems=problems,
            folders=TrainingFolders.below(folder.parent),
        )
        with open_training(training, ALONE, engine) as opened:
            opened.run(Watchers(metrics=ended))

    return run


def their_side(
    folder: Path,
    prompts: Sequence[Sequence[int]],
    shape: GrpoStepShape,
    arguments: dict[str, Any],
    write: Write = texts,
) -> Callable[[Beat], None]:
    """Run TRL's trainer with its defaults."""

    def reward(prompts: Any, completions: Any, completion_ids: list[list[int]], **_: Any) -> list[float]:
        assert all(len(ids) == shape.completion for ids in completion_ids), "a completion ended early"
        return [even_share(ids) for ids in completion_ids]

    def run(beat: Beat) -> None:
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        config = GRPOConfig(num_generations=shape.group, max_completion_length=shape.completion, **arguments)
        rows = Dataset.from_dict({"prompt": write(tokenizer, prompts)})
        trainer = GRPOTrainer(
            model=model, reward_funcs=reward, args=config, train_dataset=rows, processing_class=tokenizer
        )
        trl_side.train(trainer, beat)

    return run
