"""The league (`make league`): every recipe that trains a policy, at one budget of completions, from one warm start.

Trainings run in parallel in processes of one thread each. Every one adds a row to benchmarks/results/league.parquet as
it ends, and one that has a row of the same recipe and code is not trained again: a killed league resumes from its last
row, and on another machine with the committed file. The page docs/league.md is made from the file. Other load on the
machine changes only the seconds.

`--search` tries four step sizes for recipes whose paper names none that fits, in the same way for all: from a warm
start of another seed than the league's, so that nothing is chosen by the numbers that are compared.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.league.page import page
from benchmarks.league.records import RESULTS, ROOT, SEARCHED, LeagueResult, code_digest, commit, read_all, write
from benchmarks.league.training import BUDGET, POINTS, league_overrides, league_recipe, train
from benchmarks.shared.warm_starts import TASK, Work
from models.base.errors import UserError
from models.recipes.find import find_recipe, method_files
from models.recipes.layers import read_layers
from models.recipes.load import digest, load_recipe

SEEDS = 3
RATES = (0.00001, 0.00003, 0.0001, 0.0003)
"""Step sizes that a search tries."""
SEARCH_SEED = 100
KEPT = ("reward/total", "reward/exact_answer", "rollouts/length", "rollouts/cut_share", "policy/entropy",
        "policy/gradient_norm", "policy/pair_accuracy", "policy/kl")  # fmt: skip
"""Metrics of the rounds that are kept."""
WORK = ROOT / ".rewardflow" / "league"
PAGE = ROOT / "docs" / "league.md"


@dataclass(frozen=True)
class Job:
    """One training to be run."""

    recipe: str
    seed: int
    budget: int = BUDGET
    points: int = POINTS
    overrides: tuple[str, ...] = ()

    def resolved(self) -> Any:
        """Load the recipe as it is trained."""
        return league_recipe(self.recipe, self.budget, self.seed, self.overrides)


def entrants() -> list[str]:
    """Return the names of the recipes that train a policy to answer the league's task in one turn.

    A recipe that begins with another one's policy is left out, because all entrants have the same start.
    """
    recipes: list[Any] = [load_recipe(file) for file in method_files(ROOT / "recipes")]
    return [
        recipe.name
        for recipe in recipes
        if recipe.schedule is not None
        and recipe.data.name == TASK
        and recipe.rollouts.episodes is None
        and recipe.policy.base is None
        and recipe.advantage.trains_policy
    ]


def missing(jobs: Sequence[Job], results: Sequence[LeagueResult], code: str | None) -> list[Job]:
    """Return the jobs without a valid result."""
    by_place = {(result.recipe, result.seed): result for result in results}
    remaining = []
    for job in jobs:
        result = by_place.get((job.recipe, job.seed))
        if result is None or not result.counts(digest_of(job), code):
            remaining.append(job)
    return remaining


def digest_of(job: Job) -> str:
    """Compute the digest of all that is stated of a training: the recipe, the league's settings on top, budget and
    points.

    Defaults are not included: a new setting that changes nothing does not invalidate a result. A changed default is a
    change of the code, which has its own digest.
    """
    overrides = league_overrides(job.recipe, job.budget, job.seed, job.overrides)
    settings = read_layers(find_recipe(job.recipe), overrides)
    settings.pop("source", None)
    return digest(settings, job.budget, job.points)


def run(job: Job, work: Path, machine: str = "") -> LeagueResult:
    """Train one recipe. An error is recorded in the result."""
    recipe = job.resolved()
    began = time.process_time()
    curve, rounds, claims, seconds, failed = (), [], {}, 0.0, ""
    try:
        trained = train(Work(work), recipe, job.points)
        curve, rounds, claims, seconds = trained.curve, trained.rounds, trained.claims, trained.seconds
    except UserError as error:
        failed = str(error)
    except Exception as error:  # a fault of one recipe must not stop the others
        failed = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    drawn = round(sum(metrics["rollouts/completions"] for metrics in rounds))
    return LeagueResult(
        recipe=job.recipe,
        seed=job.seed,
        budget=job.budget,
        completions=drawn if recipe.open_ended and drawn else recipe.largest_round * recipe.schedule.rounds,
        updates=recipe.schedule.updates * len(rounds) // recipe.schedule.rounds if rounds else recipe.schedule.updates,
        learning_rate=recipe.schedule.optimiser.learning_rate,
        curve=curve,
        rounds={name: tuple(metrics[name] for metrics in rounds if name in metrics) for name in KEPT},
        claims=claims,
        failed=failed,
        recipe_digest=digest_of(job),
        code_digest=code_digest(),
        commit=commit(),
        seconds=round(seconds, 1),
        processor_seconds=round(time.process_time() - began, 1),
        machine=machine,
    )


def alone() -> None:
    """Prepare a process of the pool: one thread, nothing fetched, no progress bars."""
    import torch
    from transformers.utils import logging

    torch.set_num_threads(1)
    logging.disable_progress_bar()


def run_all(
    jobs: Sequence[Job],
    work: Path,
    results: Path,
    workers: int,
    report: Callable[[str], None],
    *,
    by_rate: bool = False,
) -> None:
    """Train all, `workers` at a time, and add each result to the file `results` as it comes."""
    for seed in dict.fromkeys(job.seed for job in jobs):  # shared files are made once, before they are needed
        Work(work).start(league_recipe(TASK, BUDGET, seed))
    machine = f"{os.cpu_count()} cores, {workers} at a time"
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=alone) as pool:
        futures = {pool.submit(run, job, work, machine): job for job in jobs}
        try:
            for count, future in enumerate(as_completed(futures), 1):
                result = future.result()
                write(result, results, by_rate=by_rate)
                outcome = result.failed or f"{result.curve[0].accuracy:.1%} to {result.curve[-1].accuracy:.1%}"
                report(
                    f"{count} of {len(jobs)}: {result.recipe}, seed {result.seed}: {outcome}, {result.seconds:.0f} s"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # otherwise waiting jobs would be trained, and lost
            raise


def estimate(jobs: Sequence[Job], results: Sequence[LeagueResult], workers: int) -> float:
    """Estimate the seconds of `jobs`: by the processor seconds of a recipe's own results, else by the median of all."""
    measured = [result for result in results if result.curve]
    rates = {result.recipe: result.processor_seconds / result.budget for result in measured}
    usual = statistics.median(rates.values()) if rates else 60 / BUDGET
    return sum(rates.get(job.recipe, usual) * job.budget for job in jobs) / workers


def of_rate(results: Sequence[LeagueResult], name: str, rate: float) -> list[LeagueResult]:
    """Return the results of a recipe with a step size."""
    return [result for result in results if result.recipe == name and math.isclose(result.learning_rate, rate)]


def search(names: Sequence[str], work: Path, results: Path, workers: int, report: Callable[[str], None]) -> str:
    """Try the step sizes on each of `names`. Returns the best ones in words; the file `results` has every training."""
    lines = []
    for name in names:
        jobs = {
            rate: Job(name, SEARCH_SEED, BUDGET // 2, 2, (f"schedule.optimiser.learning_rate={rate:.5f}",))
            for rate in RATES
        }
        for rate, job in jobs.items():
            if missing([job], of_rate(read_all(results), name, rate), code_digest()):
                run_all([job], work, results, workers, report, by_rate=True)
        ends = {rate: of_rate(read_all(results), name, rate)[0] for rate in RATES}
        scores = {rate: result.curve[-1].accuracy if result.curve else -1.0 for rate, result in ends.items()}
        winner = max(scores, key=lambda rate: scores[rate])
        shown = ", ".join(f"{score:.1%} at {rate:.5f}" for rate, score in scores.items())
        lines.append(f"{name}: {winner:.5f} ({shown}); write it into {find_recipe(name)} if it is not there")
        report(lines[-1])
    return "\n".join(lines)


def main() -> int:
    """Train what is missing and write the page. Returns 1 if a training failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="RECIPE", help="these recipes alone")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"trainings of each (default {SEEDS})")
    parser.add_argument("--budget", type=int, default=BUDGET, help=f"completions of each (default {BUDGET})")
    parser.add_argument("--points", type=int, default=POINTS, help=f"measurements of each (default {POINTS})")
    parser.add_argument("--workers", type=int, default=2, help="trainings side by side, a thread each (default 2)")
    parser.add_argument("--older", action="store_true", help="accept results of other code; the page notes it")
    parser.add_argument(
        "--results",
        type=Path,
        help=f"Parquet file ({RESULTS.relative_to(ROOT)}; with --only: tried.parquet in --work; "
        f"with --search: {SEARCHED.relative_to(ROOT)})",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="folder of data and warm starts")
    parser.add_argument("--page", type=Path, help="the page that is written (docs/league.md; with --only: printed)")
    parser.add_argument("--write-page", action="store_true", help="train nothing")
    parser.add_argument("--estimate", action="store_true", help="train nothing; print the seconds of what is missing")
    parser.add_argument("--search", action="store_true", help="try some step sizes on --only")
    options = parser.parse_args()

    def report(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    names = entrants()
    if options.only:
        if unknown := [name for name in options.only if name not in names]:
            parser.error(f"{unknown[0]} does not train a policy on {TASK}; there are {', '.join(names)}")
        names = [name for name in names if name in options.only]
    options.work.mkdir(parents=True, exist_ok=True)
    default_file = SEARCHED if options.search else options.work / "tried.parquet" if options.only else RESULTS
    results: Path = options.results or default_file
    if options.search:
        if not options.only:
            parser.error("--search needs --only RECIPE ...")
        print(search(names, options.work, results, options.workers, report))
        return 0
    code = None if options.older else code_digest()
    jobs = [Job(name, seed, options.budget, options.points) for seed in range(options.seeds) for name in names]
    remaining = missing(jobs, read_all(results), code)
    if options.estimate:
        seconds = estimate(remaining, read_all(results), options.workers)
        print(json.dumps({"trainings": len(remaining), "of": len(jobs), "seconds": round(seconds)}))
        return 0
    if remaining and not options.write_page:
        run_all(remaining, options.work, results, options.workers, report)
    all_results = read_all(results)
    current = [
        result for job in jobs for result in all_results if (result.recipe, result.seed) == (job.recipe, job.seed)
    ]
    digests = {(job.recipe, job.seed): digest_of(job) for job in jobs}
    current = [result for result in current if result.counts(digests[result.recipe, result.seed], code)]
    recipes = {name: find_recipe(name).read_text() for name in names}
    text = page(current, len(jobs), code_digest(), recipes)
    place = options.page or (None if options.only else PAGE)  # the guide's page is of all recipes
    if place is None:
        print(text)
    else:
        place.write_text(text)
    report(f"{len(current)} of {len(jobs)} trainings stand {'above' if place is None else f'in {place}'}")
    return int(any(result.failed for result in current))
