"""Curves of trainings that the tracking store has: the trainings of a run, and the history of a metric."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from models.base.errors import UserError
from tasks.tracking import store, summaries, tags
from tasks.tracking.recorded import FITTED
from tasks.tracking.summaries import RunLine


@dataclass(frozen=True)
class Training:
    """One training, and the run whose metrics are those of its rounds."""

    method: str
    """Name of the recipe."""
    name: str
    """Name of the run that it belongs to."""
    run_id: str
    """Run of the fine-tuning."""


def trainings_of(wanted: str, experiment: str = "") -> list[Training]:
    """Return the trainings of a run: its own, or those of a comparison, each with its recipe.

    Args:
        wanted: a run, as `summaries.run_summary` takes it.
        experiment: experiment to search; empty for all.

    Raises:
        UserError: the run does not exist or has no training.
    """
    summary = summaries.run_summary(experiment, wanted)
    trainings = _own(summary.line, summary.steps)
    if not trainings:
        for step in summary.steps:
            if tags.SEED in step.tags:  # a training of a comparison
                trainings += _own(step, summaries.run_summary(step.experiment, step.run_id).steps)
    if not trainings:
        raise UserError(f"run {summary.line.run_id[:8]} ({summary.line.name}) has no step {FITTED}, so no curves")
    return trainings


def curve_of(training: Training, metric: str) -> list[tuple[int, float]]:
    """Return the steps and values of a metric of a training, in the order of logging.

    Raises:
        UserError: the training has no such metric.
    """
    run = store.patiently(store.client().get_run, training.run_id)
    if metric not in run.data.metrics:
        names = sorted(run.data.metrics)
        near = difflib.get_close_matches(metric, names, n=1)
        known = f"did you mean {near[0]}?" if near else f"it has {', '.join(names) or 'no metrics'}"
        raise UserError(f"--metric {metric}: the training of {training.name} does not have it; {known}")
    history = store.patiently(store.client().get_metric_history, training.run_id, metric)
    return [(int(point.step), float(point.value)) for point in sorted(history, key=lambda each: each.timestamp)]


def _own(line: RunLine, steps: Sequence[RunLine]) -> list[Training]:
    method = line.tags.get(tags.RECIPE, "") or line.experiment
    return [
        Training(method, line.name, step.tags.get(tags.REUSED, step.run_id)) for step in steps if step.name == FITTED
    ]
