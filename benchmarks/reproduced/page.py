"""The page docs/reproduced.md, made from the records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, variance

from benchmarks.reproduced.experiments import EXPERIMENTS, Experiment, Stage
from benchmarks.reproduced.records import ReproductionRecord

QUIET = 1.25
"""Load per core above which a machine was not quiet."""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reproduced.md"
HEAD = """# Published results, reproduced on a small model

Written by `python -m benchmarks.reproduced` from `benchmarks/reproduced/records.json`; do not edit. Every experiment
trains SmolLM2-135M-Instruct on a CPU: by the recipe that is named, and by TRL's trainers with the same weights, rows,
steps and rates. Both sides are measured by the same code, greedily, on the same held-out rows. An interval is 95 %, by
rows, of the mean over the seeds. The model is smaller than any of the published ones: compare a figure with its own
start and with the other side, not with the published figure.
"""
NAMES: dict[str, str] = {"ours": "Rewardflow", "trl": "TRL"}
STAGES: dict[Stage, str] = {
    "base": "start",
    "warm_start": "after supervised training",
    "reward_model": "reward model",
    "fine_tune": "end",
}


def page(records: Sequence[ReproductionRecord]) -> str:
    """Write the page."""
    parts = [HEAD]
    for experiment in EXPERIMENTS.values():
        selected = [record for record in records if record.experiment == experiment.name]
        if selected:
            parts.append(_section(experiment, selected))
    return "\n".join(parts)


def _section(experiment: Experiment, records: Sequence[ReproductionRecord]) -> str:
    stages = [STAGES[stage] for stage in experiment.stages]
    lines = [f"## {experiment.title}", "", f"Recipe: `{experiment.recipe}`. Published: {experiment.published}.", ""]
    lines += [f"| side | seeds | metric | {' | '.join(stages)} | seconds of training | peak memory, GiB |"]
    lines += ["| --- | --- | --- |" + " --- |" * (len(stages) + 2)]
    for side, name in NAMES.items():
        if selected := [record for record in records if record.side == side]:
            lines += _rows(experiment, name, selected)
    for side, name in NAMES.items():
        for record in records:
            if record.side == side:
                lines += _curve(name, record, experiment.curve)
    lines += ["", *_resumed(records), *_machine(records)]
    return "\n".join(lines) + "\n"


def _rows(experiment: Experiment, name: str, records: Sequence[ReproductionRecord]) -> list[str]:
    """Write one line for each metric of a side."""
    trained = [sum(value for stage, value in record.seconds.items() if stage != "whole run") for record in records]
    cost = f"{fmean(trained):,.0f} | {max(record.peak_gib for record in records):.1f}"
    seeds = ", ".join(str(record.seed) for record in records)
    lines = []
    for metric, attribute in ((experiment.strict, "strict"), (experiment.lenient, "lenient")):
        if metric:
            cells = [
                shown([getattr(record.measured[stage], attribute) for record in records]) for stage in experiment.stages
            ]
            lines.append(f"| {name} | {seeds} | {metric} | {' | '.join(cells)} | {cost} |")
    return lines


def shown(values: Sequence[Sequence[float]]) -> str:
    """Write the mean of [seeds][rows] in per cent with its 95 % interval: rows are drawn, seeds are averaged."""
    by_row = [fmean(row) for row in zip(*values, strict=True)]
    middle = fmean(by_row)
    half = 1.96 * math.sqrt(variance(by_row) / len(by_row)) if len(by_row) > 1 else 0.0
    return f"{100 * middle:.1f} % [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def _curve(name: str, record: ReproductionRecord, metric: str) -> list[str]:
    """Write a metric of the last stage's steps, thinned to ten points; nothing if it was not recorded."""
    values = record.curve.get(metric, ())
    if not values:
        return []
    every = max(1, math.ceil(len(values) / 10))
    points = ", ".join(f"{value:.3f}" for value in values[::every])
    return ["", f"{name}, seed {record.seed}: `{metric}` in every {every}. step: {points}."]


def _resumed(records: Sequence[ReproductionRecord]) -> list[str]:
    lines = []
    for record in records:
        if record.resumed_weights:
            same = "to the same bits" if record.resumed_weights == record.weights else "to OTHER weights"
            lines.append(
                f"Killed once (SIGKILL) and run again, seed {record.seed} ends {same} (`{record.weights[:12]}`)."
            )
    return lines


def _machine(records: Sequence[ReproductionRecord]) -> list[str]:
    lines = sorted(
        {
            f"{record.machine['cores']} cores of {record.machine['cpu']}, {record.machine['date'][:10]}"
            for record in records
        }
    )
    output = ["", f"Machine: {'; '.join(lines)}."]
    loads = [float(record.machine.get("load_before", 0.0)) for record in records]
    if max(loads) > QUIET * min(int(record.machine["cores"]) for record in records):
        output += [
            "",
            f"Other work ran on the machine (load {min(loads):.1f} to {max(loads):.1f}), so the "
            "seconds are too high, on both sides.",
        ]
    return output
