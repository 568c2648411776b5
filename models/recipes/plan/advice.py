"""Advice for a training that does not fit: the cheapest change of the recipe with which, by its plan, it does.

Shorter rows change no result and cost almost nothing, so each option is tried with the longest rows with which it fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.base.errors import UserError
from models.parts.reference.frozen import Frozen
from models.policies.build import LoraSettings
from models.recipes.plan.stages import (
    KEYS,
    LOOP,
    WARM_START,
    PlanContext,
    Stage,
    budget_of,
    row_of,
    stage_of,
    with_budget,
)
from models.recipes.schema import Recipe

LEAST_BUDGET = 256
"""Token budget below which no shorter rows are tried."""


@dataclass(frozen=True)
class Option:
    """A change of the recipe that saves memory."""

    setting: str
    """The change as an override; empty: only shorter rows."""
    cost: str
    """Cost of the change, in words."""
    recipe: Recipe


def advice(recipe: Recipe, stage: Stage, given: PlanContext, share: float) -> str:
    """Describe the cheapest change with which a stage takes at most the share `share` of the device's memory.

    Args:
        recipe: recipe of the training.
        stage: the stage, as planned.
        given: what the plan was made for.
        share: share of the memory that may be taken.
    """
    budgets, most = _budgets(stage, recipe, given), share * given.device.memory

    def total(option: Option, budget: int) -> int:
        return stage_of(stage.name, with_budget(stage.name, option.recipe, budget), given).needs.total

    least = stage.needs.total
    for option in _options(stage.name, recipe):
        smallest = total(option, budgets[-1])
        least = min(least, smallest)
        for budget in budgets if smallest <= most else ():
            if (taken := total(option, budget)) <= most:
                return _sentence(stage.name, recipe, option, budget, taken / given.device.memory)
    taken_at_least = f"{least / given.device.memory:.0%} of the memory is the least that was found"
    return f"lower policy.size, or take a smaller base or a larger device: {taken_at_least}"


def _budgets(stage: Stage, recipe: Recipe, given: PlanContext) -> list[int]:
    """Return the budget of a stage and its possible halves, without those that are above the tokens of an update."""
    budget = budget_of(stage.name, recipe)
    budgets = [budget]
    while budget // 2 >= LEAST_BUDGET:
        budget //= 2
        try:
            row = row_of(stage.name, with_budget(stage.name, recipe, budget), given)
        except UserError:  # the shortest row that is possible is longer
            break
        if row.tokens < stage.row.tokens:
            budgets.append(budget)
    return budgets


def _sentence(stage: str, recipe: Recipe, option: Option, budget: int, share: float) -> str:
    before = budget_of(stage, recipe)
    changes, costs = [], []
    if budget != before:
        changes.append(f"lower {KEYS[stage]} from {before:,} to {budget:,}")
        costs.append("shorter rows change no result")
    if option.setting:
        changes.append(f"set {option.setting}")
        costs.append(option.cost)
    return f"{' and '.join(changes)}: {share:.0%} of the memory is then taken; {', '.join(costs)}"


def _options(stage: str, recipe: Recipe) -> Iterator[Option]:
    """Yield changes of a recipe that save memory in a stage, the cheapest first."""
    yield Option("", "", recipe)
    schedule, lora = recipe.schedule, recipe.policy.lora
    if stage == LOOP and schedule is not None:
        reference = recipe.reference
        alone = recipe.placement.learners == 1 and lora is None
        if isinstance(reference, Frozen) and alone and not reference.offload:
            offloaded = recipe.model_copy(update={"reference": replace(reference, offload=True)})
            yield Option("reference.offload=true", "it costs a copy of the weights every round", offloaded)
        if schedule.gradient_checkpointing is not True:
            again = replace(schedule, gradient_checkpointing=True)
            changed = recipe.model_copy(update={"schedule": again})
            yield Option("schedule.gradient_checkpointing=true", "layers are computed twice", changed)
        if recipe.rollouts.draws and recipe.engine.memory_share > 2 * LEAST_SHARE:
            half = recipe.engine.memory_share / 2
            changed = recipe.model_copy(update={"engine": replace(recipe.engine, memory_share=half)})
            yield Option(f"engine.memory_share={half:g}", "fewer sequences are drawn at once", changed)
    if lora is None and (stage == LOOP or (stage == WARM_START and recipe.policy.base is not None)):
        adapted = recipe.model_copy(update={"policy": replace(recipe.policy, lora=LoraSettings(rank=16))})
        yield Option("policy.lora={rank: 16}", "adapters learn instead of all weights", adapted)


LEAST_SHARE = 0.05
"""Smallest `engine.memory_share` that is recommended."""
