"""Checks that sizes in a recipe fit: completions into the model and the token budget, k of pass@k into samples."""

from __future__ import annotations

from typing import Any


def check_room(recipe: Any, positions: int | None) -> None:
    """Check that lengths and counts of a recipe fit together.

    Args:
        recipe: has `rollouts`, `evaluation` and `schedule`.
        positions: longest sequence of the policy, in tokens; None if it is not known.

    Raises:
        ValueError: a size does not fit; the message names both keys.
    """
    most, samples = max(recipe.evaluation.ks, default=1), recipe.evaluation.samples
    if most > samples:
        fitting = sorted({k for k in recipe.evaluation.ks if k <= samples} | {samples})
        raise ValueError(
            f"evaluation.ks holds {most}, but evaluation.samples is {samples}: no {most} of them can be taken; "
            f"set evaluation.ks to {fitting} or raise evaluation.samples"
        )
    if recipe.schedule is None:
        return
    if positions is not None:
        for section in ("rollouts", "evaluation"):
            tokens = getattr(recipe, section).max_tokens or 0
            if tokens >= positions:
                raise ValueError(
                    f"{section}.max_tokens is {tokens}, but the policy reads {positions} tokens at most, prompt "
                    f"included; lower it{' or raise policy.size.positions' if recipe.policy.base is None else ''}"
                )
    if recipe.schedule.token_budget <= recipe.rollouts.max_tokens:
        raise ValueError(
            f"schedule.token_budget is {recipe.schedule.token_budget}, but a row holds a prompt and a completion, and "
            f"rollouts.max_tokens alone is {recipe.rollouts.max_tokens}; raise the budget"
        )
