"""Sizes of the packed rows of a training, from the recipe alone: completions count with their maximum length."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from models.learner.packing import Sequences, pack_shares
from models.learner.rows import CPU_ROW_TOKENS
from models.method.schedule import BUDGET_KEY
from models.recipes.plan.activations import PackedRowSize
from models.recipes.plan.footprint import Device
from models.recipes.schema import Recipe


def loop_row(recipe: Recipe, config: Any, prompt: int, device: Device) -> PackedRowSize:
    """Return the largest packed row of an update of the loop.

    Args:
        recipe: has a schedule.
        config: configuration of the policy, as transformers has it.
        prompt: tokens of a prompt.
        device: where the row is read.
    """
    schedule, rollouts = recipe.schedule, recipe.rollouts
    assert schedule is not None
    group = rollouts.largest_group()
    shares = schedule.minibatches * recipe.placement.learners  # their rows are read at the same time, or before
    prompts = -(-rollouts.groups_in_round() // shares)
    labels = [number for number in range(prompts) for _ in range(group)]
    together = labels if recipe.objective.level in ("pair", "group") else None
    budget, key = schedule.token_budget, BUDGET_KEY
    return largest_row(prompts, group, (prompt, rollouts.max_tokens), budget, key, config, device, together)


def largest_row(
    prompts: int,
    group: int,
    lengths: tuple[int, int],
    budget: int,
    key: str,
    config: Any,
    device: Device,
    together: Sequence[Hashable] | None = None,
) -> PackedRowSize:
    """Return the largest of the rows that the learner packs.

    Args:
        prompts: that are read in one update.
        group: completions of each.
        lengths: tokens of a prompt and of a completion.
        budget: most tokens of a row.
        key: setting that gives the budget.
        config: configuration of the model, as transformers has it.
        device: where the row is read.
        together: label of each completion; those with the same label are never parted.

    Raises:
        UserError: the budget is smaller than the shortest row that is possible.
    """
    prompt, completion = lengths
    begun = [(number, *range(prompt - 1)) for number in range(prompts)]
    every = Sequences([ids for ids in begun for _ in range(group)], [range(completion)] * (group * prompts))
    filled = CPU_ROW_TOKENS if device.kind == "cpu" else None
    width = config.get_text_config().hidden_size
    (rows,) = pack_shares(every, budget, 1, width=width, together=together, setting=key, filled=filled)
    counts = [(len({at // group for at in row}), len(row)) for row in rows]
    sizes = [(prompt * prompts + made * completion, made * completion, prompts) for prompts, made in counts]
    return PackedRowSize(*max(sizes), len(rows) > 1)
