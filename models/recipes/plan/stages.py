"""Stages of a training, which need memory one after the other: warm start, fit of the reward model, loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from models.method.schedule import BUDGET_KEY
from models.policies.build import new_shapes
from models.recipes.plan.activations import FLOAT, PackedRowSize, activations_of, tower_activations
from models.recipes.plan.footprint import (
    Device,
    Footprint,
    adapted,
    footprint,
    learning_parts,
    logits_of,
    numbers_of,
)
from models.recipes.plan.rows import largest_row, loop_row
from models.recipes.schema import Recipe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOOP, WARM_START, REWARD_MODEL = "loop", "warm start", "reward model"
IN_TURN = (WARM_START, REWARD_MODEL, LOOP)
"""The stages in the order in which a run reaches them."""
KEYS = {
    LOOP: BUDGET_KEY,
    WARM_START: "warm_start.token_budget",
    REWARD_MODEL: "reward_model.fit.token_budget",
}
"""Setting of each stage that bounds the tokens of a row."""


@dataclass(frozen=True)
class PlanContext:
    """Model, prompt and device that a plan is made for."""

    config: Any
    """Config of the policy, as transformers has it."""
    prompt: int
    """Tokens of a prompt."""
    device: Device
    autocast: torch.dtype | None
    """Dtype of the matrix products; None: float32."""


@dataclass(frozen=True)
class Stage:
    """Planned row and memory of one stage."""

    name: str
    row: PackedRowSize
    needs: Footprint


def stages(recipe: Recipe) -> tuple[str, ...]:
    """Return the names of the stages that a recipe has, the loop first."""
    there = {LOOP: recipe.schedule, WARM_START: recipe.warm_start, REWARD_MODEL: recipe.reward_model}
    return tuple(name for name, section in there.items() if section is not None)


def stage_of(name: str, recipe: Recipe, given: PlanContext) -> Stage:
    """Plan the stage `name` of a recipe.

    Raises:
        UserError: the budget is smaller than the shortest row that is possible.
    """
    if name == LOOP:
        row = row_of(name, recipe, given)
        return Stage(name, row, footprint(recipe, given.config, row, given.device, given.autocast))
    return _warm_start(recipe, given) if name == WARM_START else _reward_model(recipe, given)


def row_of(name: str, recipe: Recipe, given: PlanContext) -> PackedRowSize:
    """Return the longest row of an update of a stage.

    Raises:
        UserError: the budget is smaller than the shortest row that is possible.
    """
    if name == LOOP:
        return loop_row(recipe, given.config, given.prompt, given.device)
    if name == WARM_START:
        assert recipe.warm_start is not None
        batch, group = recipe.warm_start.batch, 1
    else:
        assert recipe.reward_model is not None
        batch, group = recipe.reward_model.fit.batch_pairs, 1 if recipe.reward_model.process is not None else 2
    lengths = (given.prompt, recipe.rollouts.max_tokens)  # completions of the data are taken to be as long
    prompts = -(-batch // recipe.placement.learners)
    together = [number for number in range(prompts) for _ in range(group)]
    budget = budget_of(name, recipe)
    return largest_row(prompts, group, lengths, budget, KEYS[name], given.config, given.device, together)


def budget_of(name: str, recipe: Recipe) -> int:
    """Return the largest number of tokens of a row of a stage."""
    if name == LOOP:
        assert recipe.schedule is not None
        return recipe.schedule.token_budget
    if name == WARM_START:
        assert recipe.warm_start is not None
        return recipe.warm_start.token_budget
    assert recipe.reward_model is not None
    return recipe.reward_model.fit.token_budget


def with_budget(name: str, recipe: Recipe, budget: int) -> Recipe:
    """Return the same recipe with another budget of a stage."""
    if name == LOOP:
        assert recipe.schedule is not None
        return recipe.model_copy(update={"schedule": replace(recipe.schedule, token_budget=budget)})
    if name == WARM_START:
        assert recipe.warm_start is not None
        return recipe.model_copy(update={"warm_start": replace(recipe.warm_start, token_budget=budget)})
    assert recipe.reward_model is not None
    fit = replace(recipe.reward_model.fit, token_budget=budget)
    return recipe.model_copy(update={"reward_model": recipe.reward_model.model_copy(update={"fit": fit})})


def _warm_start(recipe: Recipe, given: PlanContext) -> Stage:
    """Plan the fit of the policy to demonstrations; adapters learn only if there is a base."""
    settings = recipe.warm_start
    assert settings is not None
    adapters = recipe.policy.base is not None and recipe.policy.lora is not None

    def prepare(model: PreTrainedModel) -> PreTrainedModel:
        return adapted(model, recipe) if recipe.policy.base is not None else model

    row = row_of(WARM_START, recipe, given)
    with torch.device("meta"):
        plain = new_shapes(given.config)
        parameters = numbers_of(plain)
        count, eight_bit = recipe.placement.learners, settings.optimiser.moments == "int8"
        policy = prepare(plain)
        held = learning_parts(policy, count, eight_bit=eight_bit)
        held["vision"] = tower_activations(policy, row.prompts)
    activations, backward = activations_of(given.config, prepare, row, given.autocast, False)
    logits = logits_of(given.config, row, given.device, given.autocast, cut=False, learns=not adapters)
    held |= {"parameters": parameters, "activations": activations, "backward": backward, "logits": logits}
    return _stage(WARM_START, row, held)


def _reward_model(recipe: Recipe, given: PlanContext) -> Stage:
    """Plan the fit of a reward model: the policy's body, all of which learns, with a score instead of the
    vocabulary."""
    section = recipe.reward_model
    assert section is not None
    count, eight_bit = recipe.placement.learners, section.fit.optimiser.moments == "int8"
    row = row_of(REWARD_MODEL, recipe, given)
    with torch.device("meta"):
        plain: Any = new_shapes(given.config)
        body = plain.base_model
        held = learning_parts(body, count, eight_bit=eight_bit)
        held["vision"] = tower_activations(body, row.prompts)
        parameters = numbers_of(body)
    activations, backward = activations_of(given.config, lambda model: model, row, given.autocast, False)
    states = FLOAT * row.tokens * int(given.config.get_text_config().hidden_size)
    held |= {"parameters": parameters, "activations": activations, "backward": backward, "logits": states}
    return _stage(REWARD_MODEL, row, held)


def _stage(name: str, row: PackedRowSize, held: Mapping[str, Any]) -> Stage:
    return Stage(name, row, Footprint(**held, several_rows=row.several))
