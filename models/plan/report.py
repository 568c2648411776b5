"""What a recipe will need, as a page: parameters, tokens a round, memory by part, and whether it fits the device."""

from __future__ import annotations

import os
from typing import Any

import torch

from models.errors import UserError
from models.learner.packing import Sequences, cut_into_rows
from models.learner.precision import Precision, autocast_of
from models.plan.configs import policy_config
from models.plan.footprint import Device, Footprint, Row, footprint
from models.recipe.schema import Recipe

GIB = 2**30


def planned(recipe: Recipe, prompt: int, memory: float | None) -> tuple[str, bool]:
    """The page, and whether the device is large enough.

    Args:
        recipe: nothing of it is loaded.
        prompt: tokens of a prompt; the data are not read.
        memory: of the GPU that is planned for, GiB; None: this machine's device.

    Raises:
        UserError: the recipe has no schedule, or what the policy is cannot be found out.
    """
    if recipe.schedule is None:
        raise UserError(f"{recipe.name}: schedule is null, there is no loop to plan")
    config, whence = policy_config(recipe)
    device = this_device() if memory is None else Device("cuda", int(memory * GIB))
    fastest: Precision = "bfloat16" if device.kind == "cuda" else "float32"
    autocast = autocast_of(fastest if recipe.policy.precision == "auto" else recipe.policy.precision)
    row = largest_row(recipe, config, prompt)
    needs = footprint(recipe, config, row, device, autocast)
    return _page(recipe, needs, row, device, autocast, prompt, whence), needs.total <= device.memory


def this_device() -> Device:
    """The GPU of this machine, where there is one, else its memory."""
    if torch.cuda.is_available():
        return Device("cuda", int(torch.cuda.get_device_properties(0).total_memory))
    return Device("cpu", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def largest_row(recipe: Recipe, config: Any, prompt: int) -> Row:
    """The largest packed row of an update whose completions are all as long as they may be."""
    schedule, rollouts = recipe.schedule, recipe.rollouts
    assert schedule is not None
    group = rollouts.largest_group()
    together = schedule.minibatches * recipe.placement.learners  # whose rows are read at the same time, or before
    prompts = [(number, *range(prompt - 1)) for number in range(-(-rollouts.prompts // together))]
    completion = range(rollouts.max_tokens)
    every = Sequences([ids for ids in prompts for _ in range(group)], [completion] * (group * len(prompts)))
    whole = recipe.objective.level in ("pair", "group")
    rows = [
        part
        for _, part in cut_into_rows(
            every,
            schedule.token_budget,
            width=config.get_text_config().hidden_size,
            together=[number for number in range(len(prompts)) for _ in range(group)] if whole else None,
            setting="schedule.token_budget",
        )
    ]
    sizes = [
        (prompt * len(set(part.prompts)) + len(part) * rollouts.max_tokens, len(part) * rollouts.max_tokens)
        for part in rows
    ]
    return Row(*max(sizes), len(rows) > 1)


def _page(
    recipe: Recipe,
    needs: Footprint,
    row: Row,
    device: Device,
    autocast: torch.dtype | None,
    prompt: int,
    whence: str,
) -> str:
    rollouts, schedule = recipe.rollouts, recipe.schedule
    assert schedule is not None
    completions = recipe.largest_round
    learned = rollouts.prompts * prompt + completions * rollouts.max_tokens
    head = {
        "policy": f"{needs.parameters:,} parameters ({whence}), {needs.trained:,} of them trained",
        "precision": "float32" if autocast is None else "products in bfloat16, weights and optimiser in float32",
        "a round": f"{rollouts.prompts:,} prompts, {completions:,} completions, {rollouts.max_tokens:,} tokens at most",
        "tokens": f"{completions * rollouts.max_tokens if rollouts.draws else 0:,} generated, {learned:,} learned from",
        "a row": f"{row.tokens:,} tokens (schedule.token_budget {schedule.token_budget:,})",
        "placement": f"{recipe.placement}{WHOLE if recipe.placement.learners > 1 else ''}",
        "a prompt": f"{prompt:,} tokens, as given by --prompt: the data are not read",
    }
    parts = {
        "weights": needs.weights,
        "gradients": needs.gradients,
        "optimiser": needs.optimiser,
        "reference": needs.reference,
        "companions": needs.companions,
        "reward model": needs.reward_model,
        "teachers": needs.teachers,
        "judge": needs.judge,
        "engine": needs.engine,
        "activations": needs.activations,
        "backward": needs.backward,
        "logits": needs.logits,
        "put together": needs.put_together,
    }
    lines = [f"{key:<13} {value}" for key, value in head.items()]
    lines += ["", f"{'part':<13} {'GiB':>8}"]
    lines += [f"{key:<13} {value / GIB:>8.2f}" for key, value in parts.items() if value]
    share = needs.total / device.memory
    verdict = "fits" if share <= MOST else "does not fit" if share > 1 else "hardly fits: allocators keep a tenth"
    lines += [f"{'together':<13} {needs.total / GIB:>8.2f}", ""]
    lines.append(f"{verdict}: {share:.0%} of {device.memory / GIB:.1f} GiB ({device.kind})")
    if share > MOST:
        lines.append(_advice(recipe, needs))
    return "\n".join(lines)


WHOLE = "; by part: what each learner holds, the models cut over all of them"
MOST = 0.9
"""Share of a device's memory that a plan may take: the rest is for allocators, kernels and the CUDA context."""


def _advice(recipe: Recipe, needs: Footprint) -> str:
    """What to lower, by what is largest."""
    options: dict[str, int] = {}
    if recipe.schedule is not None and recipe.schedule.gradient_checkpointing is not True:
        options["what layers keep: schedule.gradient_checkpointing=true"] = needs.activations
    options["schedule.token_budget (and with it the longest row)"] = needs.activations
    options["engine.memory_share"] = max(0, needs.engine - needs.passing) if needs.sleeps else needs.engine
    if recipe.policy.lora is None:
        options["what learns: policy.lora={rank: 16}"] = needs.gradients + needs.optimiser + needs.reference
        if recipe.placement.learners == 1 and not needs.offloaded and not recipe.reference.moves:
            options["the reference: reference.offload=true"] = needs.reference
    return f"lower {max(options, key=lambda key: options[key])}"
