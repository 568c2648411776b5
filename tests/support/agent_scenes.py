"""Small trainings on data of an environment: rows of a task set, a policy that was trained on some, and a run.

    python -m tests.support.agent_scenes RECIPE START CHECKPOINTS CALLS

This runs a scene in a separate process, which SIGKILL ends in the middle of an episode, after CALLS requests to the
policy; 0: never.
"""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from models.agents.play.demonstrations import in_turns
from models.agents.small_sets.rows import rows_of, small_set, small_sets
from models.datasets.params import read_section
from models.datasets.schema import TURNS
from models.engines.engine import CompletionRequest, EngineSettings, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.optimiser import OptimiserSettings
from models.learner.precision import autocast_rule
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.problem import KnownAnswer, Problem
from models.policies.build import SizeSettings, load_causal_model, new_policy
from models.policies.folder import save_model_folder
from models.policies.vision import VisionSettings
from models.recipes.load import load_recipe
from models.recipes.smoke import smoke_overrides
from models.task_sets.drawing import TaskSettings, make_rows
from models.task_sets.make_tasks import settings_type
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, load_tokenizer, train_tokenizer
from models.training.build import build_learner
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.tiny_resources import make_resources

ROOT = Path(__file__).resolve().parents[2]
SIZE = SizeSettings(hidden=64, layers=2, heads=2, key_value_heads=1, feed_forward=128, positions=512)
SHOWN = SupervisedSettings(steps=40, batch=16, optimiser=OptimiserSettings(learning_rate=0.01, warmup_steps=4))


@dataclass(frozen=True)
class Scene:
    """A small task set, and a policy that was trained on some of it, with a tokenizer of the recipe's kind."""

    rows: Any
    codec: Codec
    start: Path


def small_rows(name: str) -> Any:
    """Return rows of a task set or a small set. They are the same in every process."""
    if name in small_sets():
        made = rows_of(replace(small_set(name), problems={"train": 24}, demonstrations=96))
        return {kind: {"train": [{**row, "tests": "", "entry_point": ""} for row in own]} for kind, own in made.items()}
    section = read_section(ROOT / "params.yaml", name)
    small: TaskSettings = settings_type(name).model_validate(
        {**section, "problems": {"train": 24}, "demonstrations": {"train": 96}, "preferences": {}}
    )
    return make_rows(small)


def make_scene(name: str, kind: TokenizerSettings, folder: Path, vision: VisionSettings | None = None) -> Scene:
    """Make rows of a task set, and write a policy to `folder`; with a vision tower if the rows have images."""
    rows = small_rows(name)
    shown = rows["demonstrations"]["train"]
    words = [str(row[side]).replace(TURNS, "\n") for row in shown for side in ("prompt", "completion")]
    tokenizer = train_tokenizer(words, kind, vision.processor() if vision else None)
    codec = Codec(tokenizer)
    policy = new_policy(replace(SIZE, vision=vision), tokenizer, 0)
    prompts = codec.prompts([str(row["prompt"]) for row in shown])
    texts = [str(row["completion"]) for row in shown]
    fit_supervised(policy, in_turns(codec, "user", zip(prompts, texts, strict=True), 512), SHOWN, seed=0)
    save_model_folder(policy, tokenizer, folder)
    return Scene(rows, codec, folder)


def problems_of(scene: Scene, reads: str) -> list[Problem]:
    """Return the problems of the training split, with the demonstrations of each if the rollouts read them."""
    rows = scene.rows["problems"]["train"]
    tokens = scene.codec.prompts([str(row["prompt"]) for row in rows])
    problems = [
        Problem(
            f"p{number}",
            str(row["prompt"]),
            str(row["answer"]),
            int(row["level"]),
            tuple(ids),
            tests=str(row["tests"]),
            entry_point=str(row["entry_point"]),
        )
        for number, (row, ids) in enumerate(zip(rows, tokens, strict=True))
    ]
    if reads == "problems":
        return problems
    shown = scene.rows["demonstrations"]["train"]
    own = {problem.prompt: [row for row in shown if row["prompt"] == problem.prompt] for problem in problems}
    return [
        replace(
            problem,
            known=tuple(
                KnownAnswer(
                    "demonstration", tuple(scene.codec.completions([str(row["completion"])])[0]), str(row["completion"])
                )
                for row in own[problem.prompt]
            ),
        )
        for problem in problems
    ]


class Dying(TransformersEngine):
    """An engine that kills its process in the middle of an episode, when a request continues an earlier one."""

    dies = False
    calls = 0
    """Requests that are answered before the kill."""
    before: tuple[tuple[int, ...], ...] = ()

    def complete(self, requests: Sequence[CompletionRequest], drawing: TokenSampling) -> list[Generated]:
        prompts = tuple(tuple(ask.prompt) for ask in requests)
        goes_on = any(ids[: len(held)] == held != ids for ids in prompts for held in self.before)
        self.before += prompts
        self.calls -= 1
        if self.dies and self.calls < 0 and goes_on:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().complete(requests, drawing)


def main(name: str, start: Path, checkpoints: Path, calls: int) -> None:
    """Train a few rounds of a recipe. Write the weights and the metrics of the rounds next to the checkpoints."""
    (file,) = (ROOT / "recipes").rglob(f"{name}.yaml")
    recipe: Any = load_recipe(file, [*smoke_overrides(load_recipe(file)), "policy.base=null", "policy.lora=null"])
    codec = Codec(load_tokenizer(start))
    settings = replace(recipe.schedule, rounds=4, checkpoint_every=1, token_budget=4096)
    autocast = autocast_rule(recipe.policy.precision, checkpoints)
    learner = build_learner(load_causal_model(start, torch.float32), recipe, settings, autocast)
    engine = Dying(start, EngineSettings(precision="float32"), end=codec.ends)
    engine.calls, engine.dies = calls, calls > 0
    resources = make_resources(engine, None, recipe.seed, learner, 4096, recipe.truncated, codec, start=start)
    problems = problems_of(Scene(small_rows(recipe.data.name), codec, start), recipe.rollouts.reads)
    lines: list[str] = []

    def note(number: int, metrics: dict[str, float]) -> None:
        lines.append(f"{number} {metrics['episodes/turns']!r} {metrics['reward/spread']!r}")

    run_loop(resources, recipe.slots, settings, problems, checkpoints, Watchers(metrics=note))
    weights = {name: value.contiguous().clone() for name, value in learner.policy.state_dict().items()}
    save_file(weights, checkpoints.with_suffix(".safetensors"))
    checkpoints.with_suffix(".txt").write_text("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
