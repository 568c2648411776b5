"""Plans of the fits before the loop: they agree with the memory that a fit holds and the rows that a learner packs."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from models.learner.packing import Sequences
from models.learner.rows import rows_of
from models.learner.supervised import fit_supervised
from models.recipes.load import load_recipe
from models.recipes.plan.alive import Alive
from models.recipes.plan.configs import policy_config
from models.recipes.plan.footprint import Device
from models.recipes.plan.report import planned
from models.recipes.plan.rows import loop_row
from models.recipes.plan.stages import REWARD_MODEL, WARM_START, PlanContext, Stage, stage_of
from models.recipes.schema import Recipe
from models.reward_models.fit import Pair, fit_reward_model

pytestmark = pytest.mark.rotating(of=8)

PROMPT, LENGTH = 24, 32
"""Tokens of a prompt, and of a completion in BASE."""
TOLERANCE = 0.15
"""Largest gap between plan and measurement, as a share of the measurement."""
CPU = Device("cpu", 2**40)
BASE = [
    "policy.precision=float32", "policy.size={hidden: 128, layers: 3, heads: 4, key_value_heads: 2, feed_forward: 384}",
    "policy.tokenizer.vocabulary=3000", "rollouts={name: sample, prompts: 8, group_size: 4, max_tokens: 32}",
    "evaluation.max_tokens=32",
]  # fmt: skip
FITS = ["warm_start={steps: 1, batch: 24}", "reward_model={fit: {steps: 1, batch_pairs: 12}}"]
LARGE = [
    "policy.size={hidden: 576, layers: 12, heads: 9, key_value_heads: 3, feed_forward: 1536, positions: 2048}",
    "policy.tokenizer.vocabulary=49152", "rollouts.prompts=64", "rollouts.max_tokens=256", "warm_start.steps=1",
]  # fmt: skip


def prompts(count: int) -> list[tuple[int, ...]]:
    return [tuple(range(3 + number, 3 + number + PROMPT)) for number in range(count)]


def answers(count: int, step: int) -> list[tuple[int, ...]]:
    return [tuple((7 * place + step * number) % 2900 for place in range(LENGTH)) for number in range(count)]


def warm_start(recipe: Recipe, config: Any) -> tuple[Any, Callable[[], object]]:
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    assert recipe.warm_start is not None
    settings = recipe.warm_start
    sequences = Sequences(prompts(settings.batch), answers(settings.batch, 11))
    return model, lambda: fit_supervised(model, sequences, settings, seed=0)


def reward_model(recipe: Recipe, config: Any) -> tuple[Any, Callable[[], object]]:
    scored = copy.deepcopy(config)
    scored.num_labels = 1
    model = AutoModelForSequenceClassification.from_config(scored, dtype=torch.float32)
    assert recipe.reward_model is not None
    settings = recipe.reward_model.fit
    count = settings.batch_pairs
    pairs = [Pair(*each) for each in zip(prompts(count), answers(count, 11), answers(count, 13), strict=True)]
    return model, lambda: fit_reward_model(model, pairs, settings, seed=0)


def stage(name: str, recipe: Recipe, device: Device = CPU, prompt: int = PROMPT) -> Stage:
    return stage_of(name, recipe, PlanContext(policy_config(recipe)[0], prompt, device, None))


@pytest.mark.parametrize(("name", "made"), [(WARM_START, warm_start), (REWARD_MODEL, reward_model)])
@pytest.mark.parametrize("budget", [500, 16384])
def test_a_planned_fit_is_what_the_fit_holds(
    name: str, made: Callable[[Recipe, Any], tuple[Any, Callable[[], object]]], budget: int
) -> None:
    budgets = [f"warm_start.token_budget={budget}", f"reward_model.fit.token_budget={budget}"]
    recipe = load_recipe("gsm8k", [*BASE, *FITS, *budgets])
    needs = stage(name, recipe).needs
    model, fit = made(recipe, policy_config(recipe)[0])
    held = sum(4 * weight.numel() for weight in model.parameters())
    assert abs(needs.weights - held) < 0.001 * held and needs.optimiser == 2 * needs.weights
    with Alive(model.parameters()) as alive:
        fit()  # one update: the moments are created after its peak
    assert abs(needs.passing - alive.most) <= TOLERANCE * alive.most, (needs, alive.most)


@pytest.mark.parametrize("budget", [600, 3000, 16384])
def test_the_longest_row_is_that_of_the_learner_on_a_cpu_too(budget: int) -> None:
    recipe = load_recipe("gsm8k", [*BASE, f"schedule.token_budget={budget}", "rollouts.prompts=48"])
    config, _ = policy_config(recipe)
    model = AutoModelForCausalLM.from_config(config)
    every = Sequences([ids for ids in prompts(48) for _ in range(4)], answers(48 * 4, 11))
    longest = max(
        sum(map(len, set(row.sequences.prompts))) + sum(map(len, row.sequences.completions))
        for row in rows_of(model, every, budget)
    )
    assert loop_row(recipe, config, PROMPT, CPU).tokens == longest


def test_shorter_rows_are_named_before_what_costs_time_or_changes_what_learns() -> None:
    page, fits = planned(load_recipe("gsm8k", [*LARGE, "schedule.token_budget=32768"]), 256, 12)
    assert not fits
    (line,) = (line for line in page.splitlines() if line.startswith("lower schedule"))
    assert line.startswith("lower schedule.token_budget from 32,768 to ")
    assert "checkpointing" not in line and "lora" not in line
    lowered = line.split(" to ")[1].split(":")[0].replace(",", "")
    page, fits = planned(load_recipe("gsm8k", [*LARGE, f"schedule.token_budget={lowered}"]), 256, 12)
    assert fits and "hardly" not in page, page


def test_what_shorter_rows_do_not_mend_needs_more_than_these() -> None:
    page, fits = planned(load_recipe("gsm8k", LARGE), 256, 1.1)
    assert not fits and ("policy.lora={rank: 16}" in page or "reference.offload=true" in page), page
    page, fits = planned(load_recipe("gsm8k", LARGE), 256, 0.05)
    assert not fits and "take a smaller base or a larger device" in page


def test_the_warm_start_decides_where_it_holds_most() -> None:
    small = load_recipe("gsm8k", [*LARGE, "schedule.token_budget=1024", "rollouts.prompts=2", "rollouts.group_size=2"])
    assert small.warm_start is not None
    page, fits = planned(small, 256, 4)
    assert not fits and "most in the warm start" in page and "lower warm_start.token_budget from 16,384 to " in page
    lowered = small.model_copy(update={"warm_start": replace(small.warm_start, token_budget=1024)})
    page, fits = planned(lowered, 256, 4)
    assert fits, page


def test_adapters_learn_in_the_warm_start_of_a_given_base_alone() -> None:
    lora = load_recipe("gsm8k", [*LARGE, *FITS, "policy.lora={rank: 8}"])
    assert stage(WARM_START, lora).needs.trained == stage(WARM_START, load_recipe("gsm8k", LARGE)).needs.trained
    based = lora.model_copy(update={"policy": replace(lora.policy, base="/nowhere/at-all")})
    assert stage(WARM_START, based).needs.trained < 0.2 * stage(WARM_START, lora).needs.trained
    assert stage(REWARD_MODEL, based).needs.trained == stage(REWARD_MODEL, based).needs.parameters
