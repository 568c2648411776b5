"""TRL's side of an experiment: its trainers on the same weights and rows, with the recipe's settings.

    python -m benchmarks.reproduced.theirs NAME --seed N --train FILE --base FOLDER --out FOLDER

Each stage leaves its model in OUT/STAGE, and OUT/made.json has its seconds and the last stage's curve.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.reproduced.experiments import EXPERIMENTS, Experiment, Row, demonstrations_of, pairs_of, read_rows
from benchmarks.reproduced.ours import SideOutputs
from benchmarks.reproduced.processes import run
from models.answers.exact import is_right
from models.answers.likeness import gestalt
from models.base.atomic_write import write_file
from models.base.processor import processor
from models.text.prompt_form import PromptForm

MADE = "made.json"
ROWS_AT_ONCE = 16
"""Rows of a micro-batch; the result of a step does not depend on it."""
PAIRS_AT_ONCE = 4
"""Pairs of a micro-batch of DPOTrainer: with 16 of them, it takes more than 21 GiB."""
PAD = "<|endoftext|>"
"""A padding token that is not the end token: TRL reads a reward model's score before the padding."""


def train(experiment: Experiment, seed: int, files: tuple[Path, Path], base: Path, out: Path) -> SideOutputs:
    """Run TRL's side in a process of its own."""
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.reproduced.theirs", experiment.name, "--seed", str(seed)]
    command += ["--train", str(files[0]), "--base", str(base), "--out", str(out)]
    ended = run(command, {"TRL_EXPERIMENTAL_SILENCE": "1", "TOKENIZERS_PARALLELISM": "false"}, out / "run.log")
    made = json.loads((out / MADE).read_text(encoding="utf-8"))
    folders: dict[Any, Path] = {stage: base if stage == "base" else out / stage for stage in experiment.stages}
    seconds = {**made["seconds"], "whole run": ended.seconds}
    return SideOutputs(
        folders, seconds, ended.peak_gib, {name: tuple(values) for name, values in made["curve"].items()}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Train every stage of an experiment with TRL."""
    options = _parser().parse_args(arguments)
    experiment = EXPERIMENTS[options.name]
    recipe, rows = experiment.load(), read_rows(options.train)
    stages = {"reward_pairs": _reward_model, "policy_pairs": _dpo}.get(experiment.measured, _two_stages)
    seconds, curve = stages(experiment, recipe, rows, options)
    write_file(options.out / MADE, json.dumps({"seconds": seconds, "curve": curve}, indent=1))
    return 0


def _common(
    seed: int, batch: int, rate: float, decay: str, warmup: int, steps: int, at_once: int = ROWS_AT_ONCE
) -> dict[str, Any]:
    """Return the settings of a Trainer that all stages share; the rest are TRL's defaults."""
    rows = min(at_once, batch)
    return {
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": batch // rows,
        "max_steps": steps,
        "learning_rate": rate,
        "lr_scheduler_type": {"none": "constant_with_warmup"}.get(decay, decay),
        "warmup_steps": warmup,
        "max_grad_norm": 1.0,
        "optim": "adamw_torch_fused",
        "bf16": torch.cuda.is_available() or bool(processor().multiplies_bfloat16),
        "use_cpu": not torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "report_to": "none",
        "dataloader_pin_memory": False,
        "seed": seed,
    }


def _of(optimiser: Any) -> tuple[float, str, int]:
    """Return rate, decay and warm-up steps of an optimiser's settings."""
    return optimiser.learning_rate, optimiser.decay, optimiser.warmup_steps


def _two_stages(
    experiment: Experiment, recipe: Any, rows: Sequence[Row], options: argparse.Namespace
) -> tuple[Mapping[str, float], Mapping[str, list[float]]]:
    """Train by SFTTrainer, then by GRPOTrainer on the same prompts."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    reverse = experiment.measured == "similarity"
    demonstrations = demonstrations_of(experiment, rows)
    form = PromptForm.of(recipe.policy.system, recipe.data.template)
    prompts = [_conversation(form.opened(form.messages(row["prompt"]))) for row in demonstrations]
    completions = [_conversation([("assistant", row["completion"])]) for row in demonstrations]
    answers = [row["answer"] for row in demonstrations]
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    warm, began = recipe.warm_start, time.monotonic()
    config = SFTConfig(
        output_dir=str(options.out / "warm_start"),
        **_common(options.seed, warm.batch, *_of(warm.optimiser), warm.steps),
    )
    model = AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32)
    trainer: Any = SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts, "completion": completions}),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()
    seconds, began = {"warm_start": time.monotonic() - began}, time.monotonic()

    def reward(completions: Any, completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
        values = []
        for made, ids, wanted in zip(completions, completion_ids, answer, strict=True):
            text, ended = made[0]["content"], ids[-1] == tokenizer.eos_token_id
            values.append(ended * gestalt(text, wanted) if reverse else is_right(text, wanted, finished=ended))
        return list(map(float, values))

    rollouts, schedule = recipe.rollouts, recipe.schedule
    batch = rollouts.prompts * rollouts.group_size
    common = _common(options.seed, batch, *_of(schedule.optimiser), schedule.rounds)
    config = GRPOConfig(
        output_dir=str(options.out / "fine_tune"),
        num_generations=rollouts.group_size,
        max_completion_length=rollouts.max_tokens,
        temperature=rollouts.temperature,
        beta=recipe.objective.kl,
        **common,
    )
    trainer = GRPOTrainer(
        model=str(options.out / "warm_start"),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts, "answer": answers}),
    )
    trainer.train()
    trainer.save_model()
    seconds["fine_tune"] = time.monotonic() - began
    return seconds, _logged(trainer, {"reward/total": "reward", "rollouts/length": "completions/mean_length"})


def _conversation(messages: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Convert messages to the form of transformers' chat templates."""
    return [{"role": role, "content": text} for role, text in messages]


def _pairs(rows: Sequence[Row]) -> Any:
    """Make TRL's data set of prompts with a chosen and a rejected answer."""
    from datasets import Dataset

    prompts, chosen, rejected = zip(*pairs_of(rows), strict=True)
    return Dataset.from_dict({"prompt": list(prompts), "chosen": list(chosen), "rejected": list(rejected)})


def _reward_model(
    experiment: Experiment, recipe: Any, rows: Sequence[Row], options: argparse.Namespace
) -> tuple[Mapping[str, float], Mapping[str, list[float]]]:
    """Train by RewardTrainer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from trl import RewardConfig, RewardTrainer

    began, fit = time.monotonic(), recipe.reward_model.fit
    tokenizer = AutoTokenizer.from_pretrained(options.base, pad_token=PAD)
    model = AutoModelForSequenceClassification.from_pretrained(options.base, num_labels=1, dtype=torch.float32)
    steps = int(fit.epochs * len(rows)) // fit.batch_pairs
    config = RewardConfig(
        output_dir=str(options.out / "reward_model"),
        center_rewards_coefficient=fit.centring,
        **_common(options.seed, fit.batch_pairs, *_of(fit.optimiser), steps),
    )
    trainer = RewardTrainer(model=model, args=config, train_dataset=_pairs(rows), processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    return {"reward_model": time.monotonic() - began}, _logged(trainer, {"accuracy": "accuracy", "loss": "loss"})


def _dpo(
    experiment: Experiment, recipe: Any, rows: Sequence[Row], options: argparse.Namespace
) -> tuple[Mapping[str, float], Mapping[str, list[float]]]:
    """Train by DPOTrainer; the reference's log-probs are computed before the first step, as on our side."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    began, schedule = time.monotonic(), recipe.schedule
    model = AutoModelForCausalLM.from_pretrained(options.base, dtype=torch.float32)
    config = DPOConfig(
        output_dir=str(options.out / "fine_tune"),
        beta=recipe.objective.beta,
        precompute_ref_log_probs=True,
        **_common(options.seed, recipe.rollouts.prompts, *_of(schedule.optimiser), schedule.rounds, PAIRS_AT_ONCE),
    )
    tokenizer = AutoTokenizer.from_pretrained(options.base)
    trainer = DPOTrainer(model=model, args=config, train_dataset=_pairs(rows), processing_class=tokenizer)
    trainer.train()
    trainer.save_model()
    return {"fine_tune": time.monotonic() - began}, _logged(
        trainer, {"policy/pair_accuracy": "rewards/accuracies", "policy/loss": "loss"}
    )


def _logged(trainer: Any, names: Mapping[str, str]) -> dict[str, list[float]]:
    """Return the values of TRL's metrics in each step, by our names."""
    history = trainer.state.log_history
    return {ours: [float(line[name]) for line in history if name in line] for ours, name in names.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduced.theirs", description=__doc__)
    parser.add_argument("name", choices=EXPERIMENTS, help="The experiment.")
    parser.add_argument("--seed", type=int, required=True)
    for name, help_text in (
        ("train", "Rows to train on."),
        ("base", "Model folder."),
        ("out", "Folder of the results."),
    ):
        parser.add_argument(f"--{name}", type=Path, required=True, help=help_text)
    return parser


if __name__ == "__main__":
    sys.exit(main())
