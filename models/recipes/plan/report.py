"""Text of a recipe's plan: parameters, tokens per round, memory by part, and whether it fits the device."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from models.base.errors import UserError
from models.learner.precision import Precision, autocast_of
from models.recipes.plan.advice import advice
from models.recipes.plan.configs import policy_config
from models.recipes.plan.footprint import Device
from models.recipes.plan.stages import IN_TURN, KEYS, LOOP, PlanContext, Stage, budget_of, stage_of, stages
from models.recipes.schema import Recipe

GIB = 2**30


def planned(recipe: Recipe, prompt: int, memory: float | None, whence: str = "") -> tuple[str, bool]:
    """Plan a training. Returns the plan as text, and whether it fits the device.

    Args:
        recipe: recipe of the training; none of its models is loaded.
        prompt: tokens of a prompt; the data are not read.
        memory: memory of the GPU that is planned for, GiB; None: this machine's device.
        whence: where the policy's base comes from, if the recipe has its folder only.

    Raises:
        UserError: nothing of the recipe is trained, or the policy's config cannot be found.
    """
    names = stages(recipe)
    if not names:
        raise UserError(f"{recipe.name}: warm_start, reward_model and schedule are null, so nothing is trained")
    config, origin = policy_config(recipe)
    device = this_device() if memory is None else Device("cuda", int(memory * GIB))
    fastest: Precision = "bfloat16" if device.kind == "cuda" else "float32"
    autocast = autocast_of(fastest if recipe.policy.precision == "auto" else recipe.policy.precision)
    given = PlanContext(config, prompt, device, autocast)
    plans = [stage_of(name, recipe, given) for name in names]
    page = [*_head(recipe, given, plans, whence or origin), "", *_table(plans), "", *_verdict(recipe, given, plans)]
    return "\n".join(page), all(plan.needs.total <= device.memory for plan in plans)


def this_device() -> Device:
    """Return the GPU of this machine as the device of a plan, or its CPU if it has no GPU."""
    if torch.cuda.is_available():
        return Device("cuda", int(torch.cuda.get_device_properties(0).total_memory))
    return Device("cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _head(recipe: Recipe, given: PlanContext, plans: Sequence[Stage], whence: str) -> list[str]:
    rollouts, prompt = recipe.rollouts, given.prompt
    completions = recipe.largest_round
    prompts = rollouts.groups_in_round()
    learned = prompts * prompt + completions * rollouts.max_tokens
    needs = plans[0].needs
    rows = [
        f"{plan.name} {plan.row.tokens:,} tokens ({KEYS[plan.name]} {budget_of(plan.name, recipe):,})" for plan in plans
    ]
    drawn = f"{completions * rollouts.max_tokens if rollouts.draws else 0:,} generated, {learned:,} learned from"
    head = {
        "policy": f"{needs.parameters:,} parameters ({whence}), {needs.trained:,} of them trained",
        "precision": "float32" if given.autocast is None else "products in bfloat16, weights and optimiser in float32",
        "stages": ", then ".join(name for name in IN_TURN if name in {plan.name for plan in plans}),
        "a round": f"{prompts:,} prompts, {completions:,} completions, {rollouts.max_tokens:,} tokens at most",
        "tokens": drawn,
        "longest row": "; ".join(rows),
        "placement": f"{recipe.placement}{WHOLE if recipe.placement.learners > 1 else ''}",
        "a prompt": f"{prompt:,} tokens, as given by --prompt: the data are not read",
        "a completion": f"{rollouts.max_tokens:,} tokens, as rollouts.max_tokens, also of the data",
    }
    left_out: tuple[str, ...] = ("a completion",) if len(plans) == 1 and plans[0].name == LOOP else ()
    left_out += () if recipe.schedule is not None else ("a round", "tokens")
    return [f"{key:<13} {value}" for key, value in head.items() if key not in left_out]


PARTS = (
    *("weights", "gradients", "optimiser", "reference", "companions", "reward model", "teachers", "judge", "engine"),
    *("activations", "vision", "backward", "logits", "put together"),
)
"""Names of the parts of a footprint, in the order of the table."""


def _table(plans: Sequence[Stage]) -> list[str]:
    """Format GiB of each part, a column for each stage."""

    def row(name: str, values: Sequence[str]) -> str:
        return f"{name:<13} {values[0]:>8}{''.join(f'{value:>14}' for value in values[1:])}".rstrip()

    lines = [row("GiB", [plan.name for plan in plans])] if len(plans) > 1 else [row("part", ["GiB"])]
    for part in PARTS:
        sizes = [getattr(plan.needs, part.replace(" ", "_")) for plan in plans]
        if any(sizes):
            lines.append(row(part, [f"{size / GIB:.2f}" if size else "" for size in sizes]))
    return [*lines, row("together", [f"{plan.needs.total / GIB:.2f}" for plan in plans])]


def _verdict(recipe: Recipe, given: PlanContext, plans: Sequence[Stage]) -> list[str]:
    device = given.device
    most = max(plans, key=lambda plan: plan.needs.total)
    share = most.needs.total / device.memory
    verdict = "fits" if share <= MOST else "does not fit" if share > 1 else "hardly fits: allocators keep a tenth"
    where = f", most in the {most.name}" if len(plans) > 1 else ""
    lines = [f"{verdict}: {share:.0%} of {device.memory / GIB:.1f} GiB ({device.kind}){where}"]
    for plan in plans:
        if plan.needs.total > MOST * device.memory:
            lines.append(advice(recipe, plan, given, MOST))
    return lines


WHOLE = "; by part: what each learner holds, the models cut over all of them"
MOST = 0.9
"""Share of a device's memory that a plan may take: the rest is for allocators, kernels and the CUDA context."""
