"""Logging of a sweep of strategies to its MLflow run: tables, a JSON file, a plot and a description."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.sweep import CellResult, SweepChoice, gain_text, in_order
from tasks.pages import plots
from tasks.pages.description import cell, section, table
from tasks.tracking import records, runs

MOST_LOGGED = 6
"""Largest number of budgets whose choices are metrics; the table has all."""


@dataclass(frozen=True)
class Sweep:
    """A measured sweep: the cells, the difficulty of each problem, and the choices by budget."""

    results: tuple[CellResult, ...]
    bins: tuple[str, ...]
    """Difficulty of each problem, [problems]."""
    choices: tuple[SweepChoice, ...]
    """A choice for each budget, ascending."""

    def accuracies(self, result: CellResult) -> dict[str, Interval]:
        """Return the accuracy of a cell with its interval on all problems, and on those of each difficulty."""
        wheres = {"all": np.ones(len(self.bins), dtype=np.bool_)}
        wheres |= {bin: np.array(self.bins) == bin for bin in in_order(self.bins)}
        return {name: bootstrap_mean(result.accuracy[where]) for name, where in wheres.items()}


def cell_rows(sweep: Sweep) -> list[dict[str, str]]:
    """Return a row of text for each cell: accuracy in percent with 95 % intervals, tokens and seconds per turn."""
    rows = []
    for result in sweep.results:
        accuracies = sweep.accuracies(result)
        rows.append(
            {"cell": result.cell.label, "accuracy": f"{accuracies.pop('all').scaled(100):.1f}"}
            | {name: f"{100 * interval.estimate:.1f}" for name, interval in accuracies.items()}
            | {
                "tokens": f"{result.tokens:.1f}",
                "scored": f"{result.scored:.1f}",
                "milliseconds": f"{1000 * result.seconds:.2f}",
            }
        )
    return rows


def choice_rows(sweep: Sweep) -> list[dict[str, str]]:
    """Return a row of text for each budget: the chosen cells and their gain on the second half of the problems."""
    return [
        {"budget": str(choice.budget)}
        | {bin: chosen.label for bin, chosen in choice.cells.items()}
        | {
            "accuracy": f"{choice.accuracy.scaled(100):.1f}",
            "tokens": f"{choice.tokens:.1f}",
            "over plain": gain_text(choice.over_plain),
            "over the single best": f"{gain_text(choice.over_single)} ({choice.single.label})",
        }
        for choice in sweep.choices
    ]


def as_json(sweep: Sweep) -> str:
    """Render a sweep as JSON: cells with their accuracies, and the choices, with all intervals as [low, high]."""

    def ends(interval: Interval) -> dict[str, Any]:
        return {"estimate": interval.estimate, "interval": [interval.low, interval.high]}

    body = {
        "problems": {bin: sweep.bins.count(bin) for bin in in_order(sweep.bins)},
        "cells": [
            {
                "method": result.cell.method,
                "scorer": result.cell.scorer,
                "budget": result.cell.budget,
                "accuracy": {name: ends(interval) for name, interval in sweep.accuracies(result).items()},
                "tokens": result.tokens,
                "tokens_scored": result.scored,
                "seconds": result.seconds,
            }
            for result in sweep.results
        ],
        "choices": [
            {
                "budget": choice.budget,
                "cells": {bin: chosen.label for bin, chosen in choice.cells.items()},
                "single": choice.single.label,
                "accuracy": ends(choice.accuracy),
                "over_plain": ends(choice.over_plain),
                "over_single": ends(choice.over_single),
                "tokens": choice.tokens,
            }
            for choice in sweep.choices
        ],
    }
    return json.dumps(body, indent=1) + "\n"


def panels(sweep: Sweep) -> dict[str, dict[str, list[tuple[float, Interval]]]]:
    """Return the points of each panel and series: tokens per turn and accuracy, by rising tokens."""
    panels: dict[str, dict[str, list[tuple[float, Interval]]]] = {}
    for result in sorted(sweep.results, key=lambda result: result.tokens):
        for bin, accuracy in sweep.accuracies(result).items():
            panels.setdefault(bin, {}).setdefault(result.cell.series, []).append((result.tokens, accuracy))
    return panels


def write_sweep(run_id: str, sweep: Sweep, policy: str) -> None:
    """Log a sweep to its run, rename the run after its result, and write its description."""
    cells, choices = cell_rows(sweep), choice_rows(sweep)
    records.log_text(run_id, "sweep/sweep.json", as_json(sweep))
    records.log_table(run_id, "sweep/cells.json", cells)
    records.log_table(run_id, "sweep/choices.json", choices)
    records.log_figure(run_id, "plots/sweep.png", plots.accuracy_by_tokens(panels(sweep)))
    for choice in sweep.choices[-MOST_LOGGED:]:
        names = {"accuracy": choice.accuracy, "over_plain": choice.over_plain, "over_single": choice.over_single}
        records.log_metrics(
            run_id,
            {
                f"sweep_{choice.budget}/{name}{end}": value
                for name, interval in names.items()
                for end, value in (("", interval.estimate), ("_low", interval.low), ("_high", interval.high))
            },
        )
    last = sweep.choices[-1]
    result = f"{gain_text(last.over_plain)} over plain at {last.budget} answers"
    runs.rename(run_id, f"{policy}, sweep: {result}")
    parts = [
        section(title, table(list(rows[0]), [[cell(text) for text in row.values()] for row in rows]))
        for title, rows in (
            ("Chosen by difficulty on one half of the problems, confirmed on the other", choices),
            ("All cells on all problems, percent, 95 % bootstrap intervals", cells),
        )
    ]
    records.describe(run_id, f"## {cell(policy)}: {cell(result)}\n\n" + "\n".join(parts) + "\n")
