"""Every recipe on data of an environment runs through the loop on problems of its own, and its policy changes.

The policy is tiny. It was trained on some demonstrations, so that some of its turns end and have an effect.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from models.agents.small_sets.rows import small_sets
from models.datasets.built_in import TASK_SETS
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.packing import Sequences
from models.learner.precision import autocast_rule
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.policies.build import load_causal_model
from models.policies.vision import VisionSettings
from models.recipes.find import method_files
from models.recipes.load import load_recipe
from models.recipes.smoke import smoke_overrides
from models.recipes.stages import first_stage
from models.recipes.teachers import frozen_models
from models.reward_models.judges.local import LocalJudge
from models.text.tokenizer import TokenizerSettings
from models.training.build import build_learner
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.agent_scenes import Scene, make_scene, problems_of
from tests.support.simulator_here import skip_without_simulator
from tests.support.tiny_resources import make_resources


def _has_scene(file: Path) -> bool:
    """Return whether the small rows and scores here suffice: no preferences are read, and no steps are scored.

    The smoke runs of all recipes include the others.
    """
    recipe: Any = load_recipe(file)
    if recipe.schedule is None or recipe.data.name not in (*TASK_SETS, *small_sets()):
        return False
    return recipe.rollouts.reads != "preferences" and not any(reward.needs_steps for reward in recipe.rewards)


RECIPES = list(filter(_has_scene, method_files()))
ROUNDS = 2
MakeScene = Callable[[str, TokenizerSettings, VisionSettings | None], Scene]
"""Function that makes rows of a task set and a policy that was trained on some of them."""


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> MakeScene:
    @cache
    def made(name: str, kind: TokenizerSettings, vision: VisionSettings | None) -> Scene:
        return make_scene(name, kind, tmp_path_factory.mktemp(name) / "start", vision)

    return made


class Spread(Reward):
    """A small reward by token id. Without it, groups are flat, because so small a policy never reaches a goal."""

    name = "spread"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> torch.Tensor:
        return torch.tensor([sum(rollout.completion) / len(rollout.completion) for rollout in rollouts])


def scores(sequences: Sequences) -> torch.Tensor:
    """Replace the fitted reward model: scores grow with the length and with the token ids."""
    return torch.tensor([0.1 * len(ids) + 0.01 * sum(ids) for ids in sequences.completions])


@pytest.mark.rotating(of=16)
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_recipe_runs_on_its_own_problems_and_moves_the_policy(file: Path, scene: MakeScene, tmp_path: Path) -> None:
    own = load_recipe(file)
    skip_without_simulator(own)
    # A recipe after another stage has no warm start, which a policy without a base needs.
    begun = ["warm_start={steps: 1}"] if own.warm_start is None else []
    recipe: Any = load_recipe(file, [*smoke_overrides(own), "policy.base=null", "policy.lora=null", *begun])
    first = first_stage(own)
    shape = recipe.policy if first is own else first.policy
    here = scene(recipe.data.name, shape.tokenizer, shape.size.vision)
    policy = load_causal_model(here.start, torch.float32)
    before = copy.deepcopy(policy.state_dict())
    settings = replace(recipe.schedule, rounds=ROUNDS, checkpoint_every=100, token_budget=4096)
    slots = replace(recipe.slots, rewards=[*recipe.rewards, Spread(weight=0.1)])
    if recipe.objective.level != "pair":
        slots = replace(slots, select=[select for select in recipe.select if select.name != "drop_flat"])
    learner = build_learner(policy, recipe, settings, autocast_rule(recipe.policy.precision, tmp_path))
    learner.teachers = {
        role: load_causal_model(here.start, torch.float32).requires_grad_(False) for role in frozen_models(recipe)
    }
    engine = TransformersEngine(here.start, EngineSettings(), end=here.codec.ends) if slots.rollouts.draws else None
    scorer = scores if recipe.reward_model else None
    resources = make_resources(
        engine, scorer, recipe.seed, learner, 4096, recipe.truncated, here.codec, start=here.start
    )
    if recipe.judge is not None:  # so untrained a judge gives no verdict; that must not count as a failure
        resources = replace(resources, judge=LocalJudge(here.start, recipe.judge, recipe.seed))
        lenient = [replace(reward, limits=replace(reward.limits, failed_share=1.0)) for reward in slots.rewards]
        slots = replace(slots, rewards=lenient)
    metrics: dict[int, dict[str, float]] = {}
    problems = problems_of(here, slots.rollouts.reads)
    run_loop(resources, slots, settings, problems, tmp_path / "checkpoints", Watchers(metrics=metrics.__setitem__))
    assert sorted(metrics) == list(range(1, ROUNDS + 1))
    assert all(torch.isfinite(torch.tensor(value)) for values in metrics.values() for value in values.values())
    assert any(not torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
