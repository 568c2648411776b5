"""The learner of a smoke run always has tokens to train on, although so untrained a policy never answers right.

Smoke runs of these recipes once took no step. Their rewards are verdicts alone, or they use pairs of a right and a
wrong completion, a critic in its first rounds, or the best of n.
"""

from dataclasses import fields, replace

import pytest
import torch
from test_every_recipe import OVERRIDES, known, rewards_of

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.precision import autocast_rule
from models.recipes.load import load_recipe
from models.recipes.smoke import smoke_overrides
from models.training.build import build_learner
from models.training.learned import nothing_learned
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.tiny_loops import END, PROBLEMS, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("name", ["gsm8k", "expo_dpo", "ppo", "raft", "gepo", "oreal", "pacs", "inpo"])
def test_a_smoke_run_takes_a_step_though_no_answer_is_right(name, tmp_path):
    recipe = load_recipe(name, [*smoke_overrides(load_recipe(name, OVERRIDES)), *OVERRIDES])
    short = {"max_tokens": 6, "prompts": 3}
    source = replace(
        recipe.rollouts, **{field.name: short[field.name] for field in fields(recipe.rollouts) if field.name in short}
    )
    slots = replace(recipe.slots, rollouts=source)
    autocast = autocast_rule(recipe.policy.precision, tmp_path)
    learner = build_learner(tiny_policy(torch.float32, spread=3.0), recipe, recipe.schedule, autocast)
    start = save_start(tmp_path / "start")
    engine = TransformersEngine(start, EngineSettings(), end=END) if source.draws else None
    scorer = rewards_of if recipe.reward_model else None
    resources = make_resources(engine, scorer, recipe.seed, learner, truncated=recipe.truncated)
    problems = [replace(problem, known=known(source.reads), answer="999999") for problem in PROBLEMS]
    metrics: dict[int, dict[str, float]] = {}
    settings = replace(recipe.schedule, token_budget=1024)
    run_loop(resources, slots, settings, problems, tmp_path / "c", Watchers(metrics=metrics.__setitem__))
    before = tiny_policy(torch.float32, spread=3.0).state_dict()
    changed = any(not torch.equal(value, before[key]) for key, value in learner.policy.state_dict().items())
    assert nothing_learned(list(metrics.values()), float(changed)) == ""
