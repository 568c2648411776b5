"""Every recipe of agents or with episodes, trained to its end on its own data, with its YAML unchanged.

    python -m benchmarks.league.agents                          # all missing results, then docs/agents.md
    python -m benchmarks.league.agents --only calculator        # one of them; --seeds 3 for three trainings
    python -m benchmarks.league.agents --write-page             # trains nothing

A recipe that learns here ends above its start on held-out problems of the validation split, episodes played as in
training. Every training adds a row to benchmarks/results/agents.parquet; one that has a row of the same recipe is not
trained again unless it is named by --only. Data and warm starts are kept below .rewardflow/agents and shared.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from benchmarks.league.agents_page import page
from benchmarks.league.records import ROOT, LeagueResult, code_digest, commit, read_all, write
from benchmarks.league.run import KEPT, alone
from benchmarks.league.training import COMMON, train
from benchmarks.shared.warm_starts import Work
from models.base.errors import UserError
from models.datasets.built_in import BUILT_IN
from models.recipes.find import method_files
from models.recipes.load import digest, load_recipe, plain

RESULTS = ROOT / "benchmarks" / "results" / "agents.parquet"
WORK = ROOT / ".rewardflow" / "agents"
PAGE = ROOT / "docs" / "agents.md"
FAMILY = "agents"
POINTS = 3
"""Measurements of a training, in addition to that of its start."""


def entrants() -> list[str]:
    """Return the names of the recipes of the family, and of others with episodes, on data which are made here."""
    recipes: list[Any] = [load_recipe(file) for file in method_files(ROOT / "recipes")]
    return [
        recipe.name
        for recipe in recipes
        if (recipe.source.family == FAMILY or recipe.rollouts.episodes is not None)
        and recipe.schedule is not None
        and recipe.data.name in BUILT_IN
    ]


def as_trained(name: str, seed: int) -> Any:
    """Load the recipe with its own schedule, in float32 and with the transformers engine."""
    return load_recipe(name, (*COMMON, f"seed={seed}"))


def run(name: str, seed: int) -> LeagueResult:
    """Train a recipe. An error is recorded in the result."""
    recipe = as_trained(name, seed)
    began = time.process_time()
    curve, rounds, seconds, failed = (), [], 0.0, ""
    try:
        trained = train(
            Work(WORK, recipe.data.name), recipe, POINTS, log=lambda line: print(line, file=sys.stderr, flush=True)
        )
        curve, rounds, seconds = trained.curve, trained.rounds, trained.seconds
    except UserError as error:
        failed = str(error)
    except Exception as error:  # a fault of one recipe must not stop the others
        failed = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    completions = recipe.largest_round * recipe.schedule.rounds
    return LeagueResult(
        recipe=name,
        seed=seed,
        budget=completions,
        completions=round(sum(metrics["rollouts/completions"] for metrics in rounds)) or completions,
        updates=recipe.schedule.updates,
        learning_rate=recipe.schedule.optimiser.learning_rate,
        curve=curve,
        rounds={key: tuple(metrics[key] for metrics in rounds if key in metrics) for key in KEPT},
        failed=failed,
        recipe_digest=digest(plain(recipe)),
        code_digest=code_digest(),
        commit=commit(),
        seconds=round(seconds, 1),
        processor_seconds=round(time.process_time() - began, 1),
        machine=f"{os.cpu_count()} cores, one thread",
    )


def has_result(name: str, seed: int, results: Sequence[LeagueResult]) -> bool:
    """Return whether a training of the current recipe is among the results."""
    recipe_digest = digest(plain(as_trained(name, seed)))
    return any(
        (result.recipe, result.seed) == (name, seed) and result.counts(recipe_digest, None) for result in results
    )


def main() -> int:
    """Train what is missing and write the page. Returns 1 if a training failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.league.agents", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="these recipes alone, trained again")
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each (default 1)")
    parser.add_argument("--write-page", action="store_true", help="train nothing")
    options = parser.parse_args()
    names = entrants()
    if unknown := [name for name in options.only or () if name not in names]:
        choices = ", ".join(names)
        parser.error(f"{unknown[0]} is not a recipe of agents or episodes on built-in data; choose from {choices}")
    WORK.mkdir(parents=True, exist_ok=True)
    alone()
    failed, results = False, read_all(RESULTS)
    for name in [] if options.write_page else options.only or names:
        for seed in range(options.seeds):
            if not options.only and has_result(name, seed, results):
                continue
            result = run(name, seed)
            write(result, RESULTS)
            failed = failed or bool(result.failed)
            outcome = result.failed or f"{result.curve[0].accuracy:.1%} to {result.curve[-1].accuracy:.1%}"
            print(f"{name}, seed {seed}: {outcome}, {result.seconds:.0f} s", file=sys.stderr, flush=True)
    PAGE.write_text(page(names, read_all(RESULTS)))
    return int(failed)


if __name__ == "__main__":
    for key, value in {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}.items():
        os.environ.setdefault(key, value)
    sys.exit(main())
