"""`run`, `compare` and `evaluate`: the flows behind the commands of the same names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rewardflow.recipe import Recipe, overrides_of
from rewardflow.results import ComparisonOutcome, RunOutcome, StrategyOutcome, run_outcome, strategy_outcome


def run(
    recipe: str | Path | Recipe,
    *,
    refresh: bool = False,
    resume: bool = False,
    smoke: bool = False,
    cluster: str | None = None,
    **overrides: Any,
) -> RunOutcome:
    """Run a recipe, from the data to the promoted model, as `rewardflow run` does.

    Args:
        recipe: a name, a file or a `Recipe`.
        refresh: run every step except data again; judged weights are not judged again.
        resume: raise if data, code or recipe changed since the run was interrupted, instead of starting again.
        smoke: run every step in seconds, on a tiny policy, as NAME-smoke.
        cluster: address of a Ray cluster; None: this machine.
        overrides: sections and keys of the recipe: `schedule={"rounds": 20}` or `schedule__rounds=20`.

    Raises:
        UserError: the recipe or its data are wrong, or the run was stopped for a reason that the message gives.

    Example:
        >>> import rewardflow
        >>> outcome = rewardflow.run("arithmetic", smoke=True)  # doctest: +SKIP
        >>> outcome.decision, outcome.version  # doctest: +SKIP
        ('kept', 1)
    """
    file, chosen = _resolved(recipe, overrides)
    from flows.runtime.called_flow import prepare_flow
    from models.recipes.files import require_files
    from models.recipes.load import load_recipe
    from models.recipes.smoke import made_small

    if smoke:
        chosen = made_small(file, chosen)
    checked = load_recipe(file, chosen)
    require_files(checked)
    checked.placement.check(cluster)
    ready = prepare_flow()
    from flows.train import train

    ready()

    return run_outcome(train(file, chosen, refresh, cluster, resume))


def compare(
    recipes: Sequence[str | Path],
    *,
    seeds: int = 5,
    metric: str = "sampled_accuracy",
    budget: int | None = None,
    smoke: bool = False,
    target: float = 1.0,
    **overrides: Any,
) -> ComparisonOutcome:
    """Train several recipes with several seeds on one budget and compare them, as `rewardflow compare` does.

    Args:
        recipes: names or files; the first is the baseline.
        seeds: trainings of each recipe, at least 2.
        metric: held-out metric to compare.
        budget: completions of each training; None: the smallest of the recipes' own budgets.
        smoke: run the comparison in seconds on tiny policies.
        target: score that the optimality gap is measured from.
        overrides: as in `run`, for all recipes.

    Raises:
        UserError: a recipe is wrong, or the recipes cannot be compared.
    """
    names, chosen = [str(recipe) for recipe in recipes], overrides_of(overrides)
    from flows.runtime.called_flow import prepare_flow
    from models.recipes.comparison import contenders

    contenders(names, chosen, seeds, metric, budget, smoke, target)
    ready = prepare_flow()
    from flows.compare import compare as compared

    ready()
    run_id, standings, costs, lost = compared(names, chosen, seeds, metric, budget, smoke, target)
    return ComparisonOutcome(run_id, metric, standings, costs, lost)


def evaluate(policy: str | Path, strategy: str, recipe: str | Path | Recipe, **overrides: Any) -> StrategyOutcome:
    """Evaluate a policy with and without a strategy on a recipe's problems, as `rewardflow evaluate` does.

    Args:
        policy: NAME/VERSION of a registered model, or a model folder.
        strategy: name of a part of the slot `strategy`, such as `vote`.
        recipe: recipe with the problems and episodes.
        overrides: as in `run`; `strategy={"drafts": 9}` are settings of the strategy.

    Raises:
        UserError: the policy, strategy or recipe does not exist, or they do not fit together.
    """
    file, chosen = _resolved(recipe, overrides)
    folder = Path(policy).expanduser()
    address = str(folder.absolute()) if folder.is_dir() else str(policy)
    from flows.runtime.called_flow import prepare_flow

    ready = prepare_flow()
    from flows.evaluate_strategy import evaluate_strategy

    ready()
    return strategy_outcome(evaluate_strategy(address, strategy, file, chosen))


def _resolved(recipe: str | Path | Recipe, overrides: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the file or name of a recipe and all overrides."""
    from models.recipes.find import find_recipe

    name, below = (recipe.extends, recipe.overrides) if isinstance(recipe, Recipe) else (str(recipe), [])
    find_recipe(name)
    return name, [*below, *overrides_of(overrides)]
