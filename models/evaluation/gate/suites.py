"""Guards on the tasks of evaluation suites: a metric of a harness that a candidate must keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from models.base.errors import UserError, listed, shortened
from models.evaluation.gate.checks import GateCheck, share_kept

Scores = Mapping[str, float]
"""Id of a problem -> the score of a policy's answer; NaN if the metric leaves the problem out."""


class SuiteGuard(BaseModel):
    """A guard on one task of a suite, under `evaluation.suites[].guards.TASK`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    metric: str = Field(default="exact_match", min_length=1, max_length=200)
    """Metric of the task, between 0 and 1; METRIC,FILTER if the task has several filters: `exact_match,strict-match`.
    With inspect the name of the scorer."""
    margin: float = Field(default=0.05, ge=0.0)
    """Largest allowed fall of the metric."""


@dataclass(frozen=True)
class SuiteScores:
    """Scores of one policy on all tasks of a suite."""

    tasks: Mapping[str, Mapping[str, Scores]]
    """Task -> metric -> scores."""
    lower_is_better: frozenset[tuple[str, str]] = frozenset()
    """Task and metric of each metric that is better when it is lower."""


@dataclass(frozen=True)
class SuiteAnswers:
    """Scores of policies on one suite."""

    candidate: SuiteScores
    baseline: SuiteScores
    anchor: SuiteScores | None = None
    """None without a separate anchor."""


def suite_checks(
    guards: Mapping[str, Mapping[str, SuiteGuard]],
    answers: Mapping[str, SuiteAnswers],
    confidence: float,
    anchored: bool,
) -> tuple[list[GateCheck], list[GateCheck]]:
    """Return the guards of the suites, against the baseline and against the anchor.

    Args:
        guards: suite -> task -> its guard, all that the recipe names.
        answers: suite -> scores; a suite without them fails.
        confidence: confidence of the bounds, one-sided.
        anchored: whether there is an anchor in addition to the baseline.

    Raises:
        UserError: a guard names a metric that the task does not have or that cannot be a guard, or two policies were
            measured on different problems.
    """
    against_baseline, against_anchor = [], []
    for suite, of_tasks in guards.items():
        measured = answers.get(suite)
        candidate, baseline, anchor = (
            (None, None, None) if measured is None else (measured.candidate, measured.baseline, measured.anchor)
        )
        for task, guard in of_tasks.items():
            place, title = (suite, task), f"suite_{suite}_{task}"
            against_baseline.append(_check(title, place, guard, candidate, baseline, confidence, "the baseline"))
            if anchored:
                against_anchor.append(
                    _check(f"{title}_anchor", place, guard, candidate, anchor, confidence, "the anchor")
                )
    return against_baseline, against_anchor


def paired_scores(task: str, metric: str, new: SuiteScores, old: SuiteScores) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of two policies on the same problems in the same order, both [problems].

    Raises:
        UserError: they were measured on different problems.
    """
    left, right = new.tasks[task][metric], old.tasks[task][metric]
    if left.keys() != right.keys():
        example = min(left.keys() ^ right.keys())
        raise UserError(
            f"evaluation.suites: {task}: two policies were measured on different problems ({len(left)} against "
            f"{len(right)}; {shortened(example, 40)!r} is in one only); run the suite again for both"
        )
    order = list(left)
    return np.array([left[problem] for problem in order]), np.array([right[problem] for problem in order])


def _check(
    title: str,
    place: tuple[str, str],
    guard: SuiteGuard,
    new: SuiteScores | None,
    old: SuiteScores | None,
    confidence: float,
    other: str,
) -> GateCheck:
    suite, task = place
    for who, scores in (("the candidate", new), (other, old)):
        if scores is None or not scores.tasks.get(task):
            detail = f"{who} was not measured on {task} of the suite {suite}"
            return GateCheck(title, "failed", math.nan, -guard.margin, detail)
    assert new is not None and old is not None, "checked above"
    key = f"evaluation.suites: {suite}: guards.{task}.metric"
    for scores in (new, old):
        if guard.metric not in scores.tasks[task]:
            raise UserError(f"{key}: {task} has no {guard.metric!r}; it has {listed(sorted(scores.tasks[task]))}")
        if (task, guard.metric) in scores.lower_is_better:
            raise UserError(f"{key}: {guard.metric} is better when it is lower; name a metric that must not fall")
    left, right = paired_scores(task, guard.metric, new, old)
    known = np.concatenate([left, right])
    outside = known[np.isfinite(known) & ((known < 0) | (known > 1))]
    if outside.size:
        raise UserError(f"{key}: {guard.metric} is {outside[0]:g}, not between 0 and 1; name a metric that is a share")
    return share_kept(title, f"{guard.metric} on {task}", left, right, guard.margin, confidence, other)
