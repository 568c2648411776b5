"""Learning from preference pairs: DPO against TRL's DPOTrainer, the reward model against its RewardTrainer.

Pairs of one prompt and two answers of fixed length, the same on both sides, one optimiser step a batch. The log-probs
of DPO's reference are known beforehand on both sides (TRL: precompute_ref_log_probs, ours: the cache), and computing
them is not counted for either. TRL's padding_free is off in this version whatever is requested; nothing is padded here
anyway, because all pairs are equally long.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared import trl_side
from benchmarks.shared.alternate import Beat, Made, Stepper, StepperProcess, alternate, fastest
from benchmarks.shared.learners import OPTIMISER, learner_of, schedule
from benchmarks.shared.materials import learner_precision, llama, save, texts, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings, has_trl
from models.learner.packing import Sequences
from models.method.advantage import Signal
from models.method.fit import fit_round
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.parts.objective.dpo import Dpo
from models.policies.build import open_policy
from models.reward_models.fit import Pair, RewardModelSettings, fit_reward_model
from models.reward_models.model import reward_model_from_policy

AT_LEAST = {"dpo": 3.0, "reward_model": 2.0}
SHORT = dict.fromkeys(
    ("dpo", "reward_model"),
    "a shared prompt leaves 384 of 640 tokens of a pair to compute, which bounds the gain at 1.7 where both sides are "
    "equally fast a token; what is more comes from the projection, which the reward model does not have, and TRL is "
    "given bf16 and its fastest batch",
)
"""Reason why a line misses its target, if it does."""

STEPS = 2
"""Steps of one turn."""


@dataclass(frozen=True)
class PreferenceShape:
    """Sizes of one step."""

    prompt: int = 256
    answer: int = 64
    """Tokens of an answer, the end token included."""
    batch: int = 16
    """Pairs of a step."""
    distinct: int = 128


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure the row for DPO or for the reward model."""
    shape = PreferenceShape(prompt=16, answer=8, batch=4, distinct=16) if settings.quick else PreferenceShape()
    with tempfile.TemporaryDirectory() as place:
        folder = save(llama(), word_tokenizer(), Path(place) / "model")
        sides = {"ours": StepperProcess(partial(our_stepper, name, folder, shape))}
        if has_trl():
            sides["peer"] = StepperProcess(partial(their_stepper, name, folder, shape, settings.quick))
        seconds = alternate(sides, warm=settings.warm, repeats=settings.samples, steps=STEPS)
        reports = {side: stepper.stop() for side, stepper in sides.items()}
    rates = {side: [shape.batch / taken for taken in values] for side, values in seconds.items()}
    what, against = {"dpo": ("DPO", "TRL DPOTrainer"), "reward_model": ("reward model", "TRL RewardTrainer")}[name]
    return [
        compare(
            f"{what}, prompt {shape.prompt}, answers {shape.answer}, batch {shape.batch}",
            rates["ours"],
            rates.get("peer"),
            "pairs/s",
            AT_LEAST[name],
            short=SHORT.get(name, "") if has_trl() else "TRL is not installed",
            against=against,
            details=reports,
        )
    ]


def pairs_of(shape: PreferenceShape) -> list[Pair]:
    """Make random pairs; every answer ends with the end token."""
    prompts = token_lists(shape.distinct, shape.prompt, seed=1)
    chosen, rejected = (token_lists(shape.distinct, shape.answer - 1, seed=seed) for seed in (2, 3))
    return [Pair(p, [*c, 1], [*r, 1]) for p, c, r in zip(prompts, chosen, rejected, strict=True)]


def our_stepper(name: str, folder: Path, shape: PreferenceShape) -> Made:
    """Make the stepper in our side's own process."""
    run = {"dpo": our_dpo, "reward_model": our_reward_model}[name]
    report: dict[str, Any] = {}
    return Stepper(partial(run, folder, shape, report)), report


def our_reward_model(folder: Path, shape: PreferenceShape, report: dict[str, Any], beat: Beat) -> None:
    """Run the fit that the pipeline's task calls, with a beat after every update."""
    settings = RewardModelSettings(
        steps=100_000,
        batch_pairs=shape.batch,
        report_every=1,
        optimiser=OPTIMISER,
    )
    model = reward_model_from_policy(folder, seed=0)
    autocast = learner_precision(model)
    report["autocast"] = str(autocast)
    fit_reward_model(model, pairs_of(shape), settings, seed=0, autocast=autocast, report=lambda step, metrics: beat())


def our_dpo(folder: Path, shape: PreferenceShape, report: dict[str, Any], beat: Beat) -> None:
    """Run the loop's fit of the DPO objective; the reference's log-probs come with the pairs, as from the cache."""
    policy, _ = open_policy(folder)
    learner = learner_of(policy, learner_precision(policy))
    report["autocast"] = str(learner.autocast)
    pairs = pairs_of(shape)
    sequences = Sequences(
        [pair.prompt for pair in pairs for _ in range(2)],
        [ids for pair in pairs for ids in (pair.chosen, pair.rejected)],
    )
    settings = schedule()
    known = Readings(learner, settings.token_budget).under(learner.policy, sequences)
    rollouts = [
        Rollout(
            problem=Problem(str(number // 2), "", tokens=tuple(sequences.prompts[number])),
            group=number // 2,
            completion=tuple(sequences.completions[number]),
            behaviour_log_probs=row.cpu(),
            text="",
            finished=True,
            reference_log_probs=row.cpu(),
        )
        for number, row in enumerate(known)
    ]
    worth = torch.tensor([1.0, 0.0] * len(pairs))
    every = Scored(rollouts, worth, {}, {})
    while True:
        for start in range(0, len(rollouts), 2 * shape.batch):
            chosen = every.take(torch.arange(start, start + 2 * shape.batch))
            weight = Signal.of_completions(chosen.rewards, chosen.lengths).tokens  # which the loss does not read
            fit_round(learner, Dpo(), chosen, weight, settings, shape.answer)
            beat()


def their_stepper(name: str, folder: Path, shape: PreferenceShape, quick: bool) -> Made:
    """Make the stepper in TRL's own process, with the fastest of its settings."""
    run = {"dpo": their_dpo, "reward_model": their_reward_model}[name]

    def with_arguments(given: dict[str, Any]) -> Callable[[Beat], Any]:
        return partial(run, folder, shape, given)

    return fastest(trl_side.candidates(shape.batch, with_arguments, quick=quick))


def their_reward_model(folder: Path, shape: PreferenceShape, arguments: dict[str, Any], beat: Beat) -> None:
    """Run TRL's trainer on the same token ids."""
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)
    pairs = pairs_of(shape)
    rows = Dataset.from_dict(
        {
            "chosen_ids": [[*pair.prompt, *pair.chosen] for pair in pairs],
            "rejected_ids": [[*pair.prompt, *pair.rejected] for pair in pairs],
        }
    )
    trainer = RewardTrainer(model=model, args=RewardConfig(**arguments), train_dataset=rows, processing_class=tokenizer)
    assert len(trainer.train_dataset) == shape.distinct, "TRL dropped pairs"
    trl_side.train(trainer, beat)


def their_dpo(folder: Path, shape: PreferenceShape, arguments: dict[str, Any], beat: Beat) -> None:
    """Run TRL's trainer with the reference's log-probs computed before the first step."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    pairs = pairs_of(shape)

    def answers(ids: Sequence[Sequence[int]]) -> list[str]:
        return [" " + text for text in texts(tokenizer, [row[:-1] for row in ids])]  # TRL adds the end token

    rows = Dataset.from_dict(
        {
            "prompt": texts(tokenizer, [pair.prompt for pair in pairs]),
            "chosen": answers([pair.chosen for pair in pairs]),
            "rejected": answers([pair.rejected for pair in pairs]),
        }
    )
    config = DPOConfig(precompute_ref_log_probs=True, **arguments)
    trainer = DPOTrainer(model=model, args=config, train_dataset=rows, processing_class=tokenizer)
    row = trainer.train_dataset[0]
    seen = (len(row["prompt_ids"]), len(row["chosen_ids"]), len(row["rejected_ids"]))
    assert abs(seen[0] - shape.prompt) + abs(seen[1] - shape.answer) <= 1, f"TRL sees other lengths: {seen}"
    trl_side.train(trainer, beat)
