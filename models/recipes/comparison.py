"""Checks and budget of a comparison of recipes, which must have the same task, initial policy and budget.

    completions = rounds * prompts of a round * completions of a prompt     (the most, baselines and opponents included)

The recipes agree in the data, the evaluation and the initial policy; all other differences belong to the method. Each
recipe gets the number of rounds that comes nearest to the budget. If nothing is sampled (offline methods), completions
are those of the data that are learned from; the demonstrations of a prompt count as one. A recipe whose rounds draw
further prompts (`select.refills`), or which tries prompts first (`schedule.curriculum`), ends with the round in which
the budget is reached, and takes fewer rounds. Optimiser steps depend on the method; they are reported, not equalised.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from models.base.bounds import LARGEST
from models.base.errors import UserError, shortened
from models.evaluation.report import summary_names
from models.policies.build import StageSettings
from models.policies.folder import is_registered
from models.recipes.files import require_files
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe, plain
from models.recipes.schema import Recipe
from models.recipes.smoke import made_small

EXPERIMENT = "comparison"
"""Name that every recipe gets in a comparison, with the suffix `-smoke` in a smoke run.

It names the MLflow experiment, and lets the methods share reward models.
"""

MOST_SEEDS = 1000
"""Maximum number of seeds; a larger number is treated as a mistake."""

SHARED = ("data", "validation", "evaluation", "warm_start", "policy")
"""Sections that must be equal in all recipes, except for the settings of which weights of the policy learn."""


@dataclass(frozen=True)
class Contender:
    """One recipe of a comparison, with the rounds that the budget allows."""

    name: str
    file: Path
    overrides: tuple[str, ...]
    """All overrides on top of the file, name and rounds included; the seed is added for each training."""
    recipe: Recipe

    @property
    def rounds(self) -> int:
        """Number of rounds of each training."""
        assert self.recipe.schedule is not None, "checked when it was made"
        return self.recipe.schedule.rounds

    @property
    def completions(self) -> int:
        """Number of completions of each training."""
        return self.rounds * self.recipe.largest_round

    @property
    def updates(self) -> int:
        """Number of optimiser steps of each training."""
        assert self.recipe.schedule is not None, "checked when it was made"
        return self.recipe.schedule.updates


def contenders(
    paths: Sequence[str],
    overrides: Sequence[str],
    seeds: int,
    metric: str,
    budget: int | None = None,
    smoke: bool = False,
    target: float = 1.0,
) -> list[Contender]:
    """Return the recipes of a comparison, checked before anything starts.

    Args:
        paths: paths or names of recipes.
        overrides: `key.path=value` each, for all of them.
        seeds: trainings of each.
        metric: held-out metric that they are compared by.
        budget: completions of each training; None: the smallest of the recipes' own budgets.
        smoke: make every recipe small.
        target: score that the optimality gap is measured from.

    Raises:
        UserError: fewer than two recipes, two of one name, one that is wrong or trains no policy; they differ in what
            they must share; seed or name are set by hand; too few seeds; a metric that is not measured; a budget
            smaller than one round; a target that is not a finite number.
    """
    names = [find_recipe(path).stem for path in paths]
    if len(names) < 2:
        raise UserError("a comparison needs two recipes or more")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"a comparison needs recipes of different names; {twice[0]} is named twice")
    if seeds < 2:
        raise UserError(f"--seeds {seeds}: a comparison needs 2 or more, one training has no spread")
    if seeds > MOST_SEEDS:
        raise UserError(f"--seeds {shortened(seeds)}: a comparison takes {MOST_SEEDS} at most")
    for override in overrides:
        if (key := override.partition("=")[0]) in ("seed", "name"):
            raise UserError(f"--set {override}: a comparison sets {key} itself, for each of its trainings")
    if budget is not None and not 1 <= budget <= LARGEST:
        raise UserError(f"--budget {shortened(budget)}: at least one completion, {LARGEST} at most")
    if not isfinite(target):
        raise UserError(f"--target {target}: the optimality gap needs a finite number")
    contenders = [_contender(path, overrides, smoke) for path in paths]
    require_shared(contenders)
    for contender in contenders:
        base = contender.recipe.policy.base
        if isinstance(base, StageSettings):
            raise UserError(
                f"policy.base: {contender.name} begins with the policy of {base.recipe}; run that recipe first, and "
                "compare with --set policy.base=FOLDER"
            )
        if base is not None and is_registered(base):
            raise UserError(f"policy.base is {base}: a comparison begins with a folder or a hub id")
        require_files(contender.recipe)
    require_metric(metric, contenders[0].recipe)
    granted = min(contender.completions for contender in contenders) if budget is None else budget
    return [_within(contender, granted) for contender in contenders]


def _contender(path: str, overrides: Sequence[str], smoke: bool) -> Contender:
    file = find_recipe(path)
    chosen = (*(made_small(file, overrides) if smoke else overrides), f"name={EXPERIMENT}{'-smoke' if smoke else ''}")
    recipe = load_recipe(file, chosen)
    if recipe.schedule is None:
        raise UserError(f"{file}: ends before reinforcement learning (schedule: null), so it has no policy")
    return Contender(file.stem, file, chosen, recipe)


def _within(contender: Contender, budget: int) -> Contender:
    """Return the contender with the number of rounds that comes nearest to the budget."""
    size = contender.recipe.largest_round
    if budget < size:
        raise UserError(
            f"--budget {budget}: a round of {contender.name} is {size} completions (rollouts.prompts x completions of "
            "a prompt); raise the budget or lower rollouts.prompts"
        )
    chosen = (*contender.overrides, *rounds_within(contender.recipe, budget))
    return Contender(contender.name, contender.file, chosen, load_recipe(contender.file, chosen))


def rounds_within(recipe: Recipe, budget: int) -> list[str]:
    """Return overrides that set the number of rounds nearest to `budget` completions.

    If rounds differ in size, they also set the limit of completions.
    """
    size = recipe.largest_round
    rounds = f"schedule.rounds={(budget + size // 2) // size}"
    return [rounds, f"schedule.completions={budget}"] if recipe.open_ended else [rounds]


def require_shared(contenders: Sequence[Contender]) -> None:
    """Check that all contenders have the same task and initial policy as the first.

    Raises:
        UserError: a key differs.
    """
    first = contenders[0]
    for other in contenders[1:]:
        differs = _difference(_shared(first.recipe), _shared(other.recipe))
        if differs is not None:
            key, ours, theirs = differs
            raise UserError(
                f"a comparison needs recipes with one task and one policy to begin with, but {key} is {_shown(ours)} "
                f"in {first.name} and {_shown(theirs)} in {other.name}"
            )


def require_metric(metric: str, recipe: Recipe) -> None:
    """Check that an evaluation measures `metric`, as far as that is known before the data are read.

    Raises:
        UserError: it does not.
    """
    known = summary_names(recipe.evaluation.ks, recipe.evaluation.samples)
    if recipe.reward_model is None:
        known = [name for name in known if not name.startswith("reward_")]
    if recipe.gate.safety_patterns:
        known.append("flagged_share")
    if metric in known or re.fullmatch(r"level_[0-9]+_accuracy", metric):
        return
    near = difflib.get_close_matches(metric, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}, level_L_accuracy"
    at_k = re.fullmatch(r"(?:pass|maj)_at_[1-9][0-9]*", metric)
    ks = ", ".join(map(str, recipe.evaluation.ks))
    why = f"evaluation.ks is {ks}, evaluation.samples {recipe.evaluation.samples}" if at_k else "it is not measured"
    raise UserError(f"--metric {metric}: {why}; {hint}")


def _shared(recipe: Recipe) -> dict[str, Any]:
    """Return the sections in which recipes agree."""
    described = plain(recipe)
    shared = {name: described[name] for name in SHARED}
    shared["policy"].pop("subnetwork")
    if recipe.warm_start is None:
        shared["policy"].pop("lora")  # an adapter that no warm start has trained changes nothing at the beginning
    if recipe.evaluation.max_tokens is None:
        shared["evaluation"]["max_tokens"] = described["rollouts"]["max_tokens"]
    return shared


def _difference(first: Any, other: Any, path: str = "") -> tuple[str, Any, Any] | None:
    """Return the first key path whose values differ, with both values."""
    if not (isinstance(first, Mapping) and isinstance(other, Mapping)):
        return None if first == other else (path, first, other)
    for key in dict.fromkeys((*first, *other)):
        difference = _difference(first.get(key), other.get(key), f"{path}.{key}" if path else key)
        if difference is not None:
            return difference
    return None


def _shown(value: Any) -> str:
    return "set" if isinstance(value, Mapping) else json.dumps(value, default=str)
