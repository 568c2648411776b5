"""Every recipe of the repository runs through the loop in a small form, and its policy changes.

The parts, the learner, the engine and the checkpoints are the real ones. The policy is tiny and never answers right.
Therefore a verdict on the first token replaces `exact_answer`, and a made-up score replaces the fitted reward model.
"""

from dataclasses import fields, replace

import pytest
import torch

from models.datasets.built_in import EXTRA_SETS, TASK_SETS
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.precision import autocast_rule
from models.method.problem import KnownAnswer
from models.method.reward import Reward
from models.recipes.find import method_files
from models.recipes.load import load_recipe
from models.recipes.teachers import frozen_models
from models.reward_models.judges.local import LocalJudge
from models.reward_models.principles import PrincipledScorer
from models.reward_models.scorer import GoalScorer, StepScorer
from models.training.build import build_learner
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.own_rows import reads_own_rows
from tests.support.tiny_loops import CODEC, END, PROBLEMS, save_start
from tests.support.tiny_models import tiny_policy
from tests.support.tiny_resources import make_resources

RECIPES = [
    file
    for file in method_files()
    if load_recipe(file).schedule is not None  # a recipe that ends after its reward model has no loop
    # recipes of environments have problems of their own (test_every_agents_recipe)
    and load_recipe(file).data.name not in (*TASK_SETS, *EXTRA_SETS)
    and not reads_own_rows(load_recipe(file))
]
SMALL = {"prompts": 3, "max_tokens": 6}
ROUNDS = 3
OVERRIDES = ["policy.precision=float32", "policy.base=null", "policy.lora=null"]


def small(part, least):
    """Return the part with few prompts, short completions and groups of at most 4, or more if `least` requires it."""
    names = {item.name for item in fields(part)}
    changed = {name: value for name, value in SMALL.items() if name in names}
    if "group_size" in names:
        changed["group_size"] = min(part.group_size, 4 if least <= 2 else least + 3)
    if "shows" in names:
        changed["shows"] = "answer"  # a peer must be right, and so small a policy never is
    return replace(part, **changed)


def known(reads):
    """Return the answers that the data contain for every prompt."""
    kinds = {"problems": [], "demonstrations": ["demonstration"] * 2, "preferences": ["chosen", "rejected"]}[reads]
    answers = ["4 + 7 #### 7", "1 #### 2"]
    rows = zip(kinds, answers, CODEC.completions(answers), strict=False)
    return tuple(KnownAnswer(kind, tuple(ids), text, "" if text[-1] == "7" else "slip") for kind, text, ids in rows)


def rewards_of(sequences):
    """Replace the fitted reward model: scores grow with the length and with the token ids."""
    return torch.tensor([0.1 * len(ids) + 0.01 * sum(ids) for ids in sequences.completions])


def nearness_of(sequences):
    """Replace the goal model: the nearness to the goal depends on the token alone."""
    return [torch.tensor([(token % 5) / 5 for token in ids]) for ids in sequences.completions]


def values_of(sequences, ends):
    """Replace the fitted process reward model: the value of a step depends on the token that ends it."""
    made = zip(sequences.completions, ends, strict=True)
    return [torch.tensor([ids[end] % 7 / 7 for end in some]) for ids, some in made]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_recipe_runs_and_moves_the_policy(file, tmp_path):
    # A recipe after another stage has no warm start, which a policy without a base needs.
    begun = ["warm_start={steps: 1}"] if load_recipe(file).warm_start is None else []
    recipe = load_recipe(file, [*OVERRIDES, *begun])
    settings = replace(recipe.schedule, rounds=ROUNDS, checkpoint_every=2, samples_every=2, token_budget=512)
    rewards = [
        FirstWord(weight=reward.weight, label=reward.label) if reward.name == "exact_answer" else reward
        for reward in recipe.rewards
    ]
    slots = replace(
        recipe.slots,
        rollouts=small(recipe.rollouts, recipe.advantage.least_group),
        rewards=[*rewards, Spread(weight=0.1)],
    )
    if recipe.objective.level != "pair":
        slots = replace(slots, select=[select for select in recipe.select if select.name != "drop_flat"])
    start = save_start(tmp_path / "start")
    policy = tiny_policy(torch.float32, spread=3.0)
    learner = build_learner(policy, recipe, settings, autocast_rule(recipe.policy.precision, tmp_path))
    learner.teachers = {
        role: tiny_policy(torch.float32, seed=seed, spread=3.0, hidden=32).requires_grad_(False)
        for seed, role in enumerate(frozen_models(recipe), start=1)
        if role != "judge"
    }
    engine = TransformersEngine(start, EngineSettings(), end=END) if slots.rollouts.draws else None
    scorer = rewards_of if recipe.reward_model else None
    if recipe.reward_model and recipe.reward_model.process:
        scorer = StepScorer(values_of, recipe.reward_model.process.reading, CODEC)
    if recipe.reward_model and recipe.reward_model.principles:
        scorer = PrincipledScorer(rewards_of, dict.fromkeys(recipe.reward_model.principles, ()))
    if any(reward.needs_goal for reward in slots.rewards):
        scorer = GoalScorer(rewards_of, nearness_of)
    resources = make_resources(engine, scorer, recipe.seed, learner, truncated=recipe.truncated, start=start)
    if recipe.judge is not None:  # so untrained a judge gives no verdict; that must not count as a failure
        resources = replace(resources, judge=LocalJudge(start, recipe.judge, recipe.seed))
        lenient = [replace(reward, limits=replace(reward.limits, failed_share=1.0)) for reward in slots.rewards]
        slots = replace(slots, rewards=lenient)
    problems = [replace(problem, known=known(slots.rollouts.reads)) for problem in PROBLEMS]
    metrics = {}
    run_loop(resources, slots, settings, problems, tmp_path / "checkpoints", Watchers(metrics=metrics.__setitem__))
    assert sorted(metrics) == list(range(1, ROUNDS + 1))
    assert all(torch.isfinite(torch.tensor(value)) for values in metrics.values() for value in values.values())
    before = tiny_policy(torch.float32, spread=3.0).state_dict()
    moved = any(not torch.equal(value, before[name]) for name, value in learner.policy.state_dict().items())
    assert moved == recipe.advantage.trains_policy
    assert moved or any(companion.updates for companion in learner.companions.values())


class FirstWord(Reward):
    """A verdict that replaces `exact_answer`: a completion is right if its first token id is even."""

    def __call__(self, resources, rollouts):
        return torch.tensor([1.0 - rollout.completion[0] % 2 for rollout in rollouts])


class Spread(Reward):
    """A small reward by token id. Without it, groups are flat, because so small a policy gives no right answer."""

    name = "spread"

    def __call__(self, resources, rollouts):
        return torch.tensor([sum(rollout.completion) / len(rollout.completion) for rollout in rollouts])
