"""Logging of a comparison of methods to its MLflow run: metrics, a table, a plot and a description."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.evaluation.aggregate import Standing, profiles
from models.evaluation.bootstrap import Interval
from tasks.pages import plots, run_names
from tasks.pages.description import cell, section, table
from tasks.tracking import records, runs

ENOUGH_SEEDS = 10
"""Number of seeds from which on bootstrap intervals over them are about as wide as they should be."""


@dataclass(frozen=True)
class TrainingCost:
    """Budget of a method's training, and its cost as the mean over the seeds."""

    rounds: int
    completions: int
    """Completions that were sampled or read, of all rounds; see models.recipes.comparison."""
    updates: int
    """Optimiser steps."""
    seconds: float
    """Wall time of the loop, seconds."""
    tokens: float
    """Tokens of the completions that the loop processed."""


def comparison_rows(standings: Sequence[Standing], costs: Sequence[TrainingCost]) -> list[dict[str, object]]:
    """Return one row a method, for a table."""
    return [
        {
            "method": standing.method,
            "interquartile mean": f"{standing.middle:.3f}",
            "beats the first": "" if standing.improvement is None else f"{standing.improvement:.2f}",
            "optimality gap": f"{standing.gap:.3f}",
            "seeds": " ".join(f"{score:.3f}" for score in standing.scores),
            "rounds": cost.rounds,
            "completions": cost.completions,
            "updates": cost.updates,
            "seconds": round(cost.seconds, 1),
            "tokens": round(cost.tokens),
        }
        for standing, cost in zip(standings, costs, strict=True)
    ]


def _with_ends(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.estimate, f"{name}_low": interval.low, f"{name}_high": interval.high}


def write_comparison(
    run_id: str, metric: str, standings: Sequence[Standing], costs: Sequence[TrainingCost], lost: Sequence[str] = ()
) -> None:
    """Log a comparison to its run, rename the run after the best method, and write its description.

    Args:
        lost: the trainings that did not learn, one line each.
    """
    rows = comparison_rows(standings, costs)
    for standing in standings:
        metrics = _with_ends(f"{standing.method}/iqm", standing.middle)
        metrics |= _with_ends(f"{standing.method}/optimality_gap", standing.gap)
        if standing.improvement is not None:
            metrics |= _with_ends(f"{standing.method}/probability_of_improvement", standing.improvement)
        records.log_metrics(run_id, metrics)
    records.log_table(run_id, "comparison.json", rows)
    records.log_figure(run_id, "plots/comparison.png", plots.comparison(standings, metric))
    by_method = profiles({standing.method: standing.scores for standing in standings})
    records.log_figure(run_id, "plots/profiles.png", plots.performance_profiles(by_method, metric))
    head = list(rows[0])
    body = table(head, [[cell(str(row[key])) for key in head] for row in rows])
    best = max(standings, key=lambda standing: standing.middle.estimate)
    runs.rename(run_id, run_names.compared(best.method, len(standings) - 1, best.middle, metric))
    records.describe(
        run_id,
        f"## {cell(best.method)} has the highest interquartile mean of {cell(metric)}\n\n"
        + "".join(f"- ✘ {cell(line)}\n" for line in lost)
        + ("\n" if lost else "")
        + section(f"{len(standings)} methods, {intervals_heading(len(standings[0].scores))}", body)
        + "\n",
    )


def intervals_heading(seeds: int) -> str:
    """Describe the intervals of a table of comparisons: the number of seeds, and whether they are too few."""
    narrow = "" if seeds >= ENOUGH_SEEDS else ", too narrow with so few seeds"
    return f"{seeds} seeds each, 95 % bootstrap intervals{narrow}"
