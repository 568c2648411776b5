"""The statistical power of a recipe's gate: the number of problems needed to detect a difference."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from models.base.errors import UserError
from models.evaluation.gate.evidence import is_findable, problems_needed, spread_of_differences
from models.evaluation.table import read_records
from models.recipes.schema import Recipe
from tasks.steps.promote import policy_name
from tasks.tracking import records, registry, tags

OWN = 0.1
"""Assumed standard deviation over problems of the true difference between two trained policies."""
UNCERTAINTY = 0.13
"""Assumed mean over problems of p (1 - p), p being the share of right samples; used before the first champion."""
NIGHTS = (1, 30, 180, 365)
DIFFERENCES = (0.005, 0.01, 0.02, 0.04)


def gate_power(recipe: Recipe, difference: float | None) -> str:
    """Return a table of the number of problems needed to detect each difference with 80 % power, a row a look.

    Raises:
        UserError: the difference is not between 0 and 1, or the recipe ends before it is judged.
    """
    if recipe.schedule is None:
        raise UserError(f"{recipe.name}: ends before reinforcement learning (schedule: null), so no gate judges it")
    if difference is not None and not 0 < difference < 1:
        raise UserError(f"--difference {difference}: must lie between 0 and 1")
    gate = recipe.gate
    spread, source = _spread(recipe)
    differences = DIFFERENCES if difference is None else (difference,)
    lines = [
        f"{recipe.name}: {gate.problems} problems of the gate split, {gate.samples} samples each",
        f"spread of the paired differences over problems: {spread:.3f} ({source})",
        "",
        "problems needed to find a true difference with 80 % power",
        f"{'look':>6} {'level':>9} " + " ".join(f"{difference:>9.3f}" for difference in differences),
    ]
    for night in (*(night for night in NIGHTS if night < gate.looks), gate.looks):
        look = gate.next_look(night - 1)
        needed = " ".join(_needed(spread, difference, look.alpha) for difference in differences)
        lines.append(f"{night:>6} {look.alpha:>9.2g} {needed}")
    return "\n".join(lines)


def _needed(spread: float, difference: float, alpha: float) -> str:
    """Format the number of problems that a difference needs; never, if no number suffices for the gate's bets."""
    return f"{problems_needed(spread, difference, alpha):>9,}" if is_findable(spread, difference) else f"{'never':>9}"


def _spread(recipe: Recipe) -> tuple[float, str]:
    champion = registry.champion(policy_name(recipe))
    run = registry.facts_of(champion).get(tags.EVALUATION_RUN, "") if champion is not None else ""
    if champion is not None and run:
        with tempfile.TemporaryDirectory() as scratch:
            file = records.fetch_artifact(run, "evaluation/records.parquet", Path(scratch))
            evaluated = read_records(file) if file is not None else []
        if evaluated and all(len(record.samples) > 1 for record in evaluated):
            correct = np.array([[float(s.correct) for s in record.samples] for record in evaluated])
            source = f"champion version {champion.version} on validation, and {OWN} assumed between two trainings"
            return spread_of_differences(correct, recipe.gate.samples, OWN), source
    spread = float(np.sqrt(2 * UNCERTAINTY / recipe.gate.samples + OWN**2))
    return spread, f"assumed, no champion exists yet: p (1 - p) {UNCERTAINTY} on average, {OWN} between two trainings"
