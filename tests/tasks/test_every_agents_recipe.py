"""Every recipe on data of an environment runs through the loop, on problems of its own, and the policy learns.

The policy is tiny and was shown some of the demonstrations, so that its turns end and mean something here and there.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_worlds import make_world

from models.datasets.built_in import TASK_SETS
from models.datasets.make_tasks import settings_type
from models.datasets.params import read_section
from models.datasets.task_sets.drawing import TURNS, TaskSettings, make_rows
from models.engine.engine import EngineSettings
from models.engine.transformers_engine import TransformersEngine
from models.episodes.demonstrations import in_turns
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.loop.loop import Watchers, run_loop
from models.loop.rollout import Known, Problem, Rollout
from models.loop.slots import Reward
from models.loop.world import World
from models.policy.build import SizeSettings, load_causal_model, new_policy
from models.policy.folder import save_model_folder
from models.recipe.load import load_recipe
from models.recipe.smoke import smoke_overrides
from models.recipe.teachers import frozen_models
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tasks.open_learner import build_learner

ROOT = Path(__file__).resolve().parents[2]
RECIPES = [
    file
    for file in sorted((ROOT / "recipes").glob("*.yaml"))
    if load_recipe(file).schedule is not None and load_recipe(file).data.name in TASK_SETS
]
SIZE = SizeSettings(hidden=64, layers=2, heads=2, key_value_heads=1, feed_forward=128, positions=512)
SHOWN = SupervisedSettings(steps=40, batch=16, optimiser=OptimiserSettings(learning_rate=0.01, warmup_steps=4))
ROUNDS = 2


@dataclass(frozen=True)
class Scene:
    """A task set made small, and a policy that was shown some of it, in tokens of the recipe's kind."""

    rows: Any
    codec: Codec
    start: Path


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, TokenizerSettings], Scene]:
    @cache
    def made(name: str, kind: TokenizerSettings) -> Scene:
        section = read_section(ROOT / "params.yaml", name)
        small: TaskSettings = settings_type(name).model_validate(
            {**section, "problems": {"train": 24}, "demonstrations": {"train": 96}}
        )
        rows = make_rows(small)
        shown = rows["demonstrations"]["train"]
        words = [str(row[side]).replace(TURNS, "\n") for row in shown for side in ("prompt", "completion")]
        tokenizer = train_tokenizer(words, kind)
        codec = Codec(tokenizer)
        policy = new_policy(SIZE, tokenizer, 0)
        prompts = codec.prompts([str(row["prompt"]) for row in shown])
        texts = [str(row["completion"]) for row in shown]
        fit_supervised(policy, in_turns(codec, "user", zip(prompts, texts, strict=True), 512), SHOWN, seed=0)
        folder = tmp_path_factory.mktemp(name) / "start"
        save_model_folder(policy, tokenizer, folder)
        return Scene(rows, codec, folder)

    return made


class Spread(Reward):
    """A little reward for some tokens, so that groups are not flat where so small a policy never reaches a goal."""

    name = "spread"

    def __call__(self, world: World, rollouts: Sequence[Rollout]) -> torch.Tensor:
        return torch.tensor([sum(rollout.completion) / len(rollout.completion) for rollout in rollouts])


def problems_of(scene: Scene, reads: str) -> list[Problem]:
    """The problems of the training split, with the demonstrations of each where the rollouts read them."""
    rows = scene.rows["problems"]["train"]
    tokens = scene.codec.prompts([str(row["prompt"]) for row in rows])
    problems = [
        Problem(f"p{number}", str(row["prompt"]), str(row["answer"]), int(row["level"]), tuple(ids))
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
                Known(
                    "demonstration", tuple(scene.codec.completions([str(row["completion"])])[0]), str(row["completion"])
                )
                for row in own[problem.prompt]
            ),
        )
        for problem in problems
    ]


def scores(sequences: Sequences) -> torch.Tensor:
    """In place of a fitted reward model: longer is better, and some words are."""
    return torch.tensor([0.1 * len(ids) + 0.01 * sum(ids) for ids in sequences.completions])


@pytest.mark.rotating(of=8)
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_recipe_runs_on_its_own_problems_and_moves_the_policy(
    file: Path, scene: Callable[[str, TokenizerSettings], Scene], tmp_path: Path
) -> None:
    own = load_recipe(file)
    recipe: Any = load_recipe(file, [*smoke_overrides(own), "policy.base=null", "policy.lora=null"])
    here = scene(recipe.data.name, recipe.policy.tokenizer)
    policy = load_causal_model(here.start, torch.float32)
    before = copy.deepcopy(policy.state_dict())
    settings = replace(recipe.schedule, rounds=ROUNDS, checkpoint_every=100, token_budget=4096)
    slots = replace(recipe.slots, rewards=[*recipe.rewards, Spread(weight=0.1)])
    if recipe.objective.level != "pair":
        slots = replace(slots, select=[select for select in recipe.select if select.name != "drop_flat"])
    learner = build_learner(policy, recipe, settings, tmp_path, None)
    learner.teachers = {
        role: load_causal_model(here.start, torch.float32).requires_grad_(False) for role in frozen_models(recipe)
    }
    engine = TransformersEngine(here.start, EngineSettings(), end=here.codec.ends) if slots.rollouts.draws else None
    scorer = scores if recipe.reward_model else None
    world = make_world(engine, scorer, recipe.seed, learner, 4096, recipe.truncated, here.codec, start=here.start)
    metrics: dict[int, dict[str, float]] = {}
    problems = problems_of(here, slots.rollouts.reads)
    run_loop(world, slots, settings, problems, tmp_path / "checkpoints", Watchers(metrics=metrics.__setitem__))
    assert sorted(metrics) == list(range(1, ROUNDS + 1))
    assert all(torch.isfinite(torch.tensor(value)) for values in metrics.values() for value in values.values())
    assert any(not torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
