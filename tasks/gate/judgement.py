"""The gate's judgement of one policy against another: the look, the verdict, the decision, and metrics of them.

It is used for a candidate (steps/promote.py) and for a champion that was set by hand (steps/judge_champion.py).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.base.sections import Sections, of
from models.evaluation.gate.checks import GateCheck
from models.evaluation.gate.gate import GateSettings, Verdict, judge
from models.evaluation.gate.held_out import HeldOutAnswers
from models.evaluation.gate.suites import SuiteAnswers, suite_checks
from models.evaluation.records import PromptRecord
from models.evaluation.table import read_records
from models.recipes.schema import RewardModelSection
from models.recipes.suites import SuiteSettings
from tasks.harness.results import read_scores
from tasks.runner.contents import content_of
from tasks.runner.step import StepResult
from tasks.tracking.looks import take_look
from tasks.tracking.verdict_record import Decision, Reason, VerdictRecord


@dataclass(frozen=True)
class OnGate:
    """A policy's evaluations for the gate."""

    gate: StepResult
    """Its evaluation on the gate's problems."""
    held_out: Mapping[str, StepResult] = field(default_factory=dict)
    """Name of a held-out set -> its evaluation on the problems of that set."""
    suites: Mapping[str, StepResult] = field(default_factory=dict)
    """Name of an evaluation suite -> its evaluation on the tasks of that suite."""


class JudgementSections(Sections):
    """The sections of the recipe on which a verdict depends."""

    name: str
    gate: GateSettings
    reward_model: RewardModelSection | None
    promote_unpinned: bool
    suites: tuple[SuiteSettings, ...] = of("evaluation.suites")


def judged(
    name: str,
    recipe: JudgementSections,
    candidate: OnGate,
    baseline: OnGate,
    anchor: OnGate | str,
    weights: str,
) -> Verdict:
    """Judge a candidate against a baseline on the gate's problems; this spends a look at them (tracking/looks.py).

    Args:
        name: registered model, on which the looks are counted.
        anchor: evaluations of the anchor, or why there are none.
        weights: digest of the weights. If the same answers are compared with those of the same baseline, by the same
            metric as at the last look, that look is continued.
    """
    policies = f"{weights} against {baseline.gate.links['model_id']}"
    compared = f"{policies} by {recipe.gate.metric} of {candidate.gate.digest[:16]}"
    split, sketch = candidate.gate.links["gate_split"], candidate.gate.links["gate_sketch"]
    guards = _suite_guards(recipe, candidate, baseline, anchor)  # before the look: a wrong metric must not use one up
    look = take_look(name, split, sketch, compared, recipe.gate)
    return judge(
        _records(candidate.gate),
        _records(baseline.gate),
        recipe.gate,
        anchor=anchor if isinstance(anchor, str) else _records(anchor.gate),
        look=look,
        reward_model=recipe.reward_model is not None,
        held_out={
            held: HeldOutAnswers(
                _records(candidate.held_out[held]),
                _records(baseline.held_out[held]),
                None if isinstance(anchor, str) else _records(anchor.held_out[held]),
            )
            for held in candidate.held_out
        },
        suites=guards,
    )


def grounds_of(recipe: JudgementSections, candidate: OnGate) -> str:
    """Return a digest of the gate's settings, of the guards of suites, and of a candidate's answers.

    If it differs from that of an earlier verdict on the same weights, the candidate is judged again.
    """
    defaults = vars(GateSettings())  # left out, so that a setting that a later release adds changes nothing
    settings = {name: value for name, value in vars(recipe.gate).items() if value != defaults[name]}
    guards = {suite.title: suite.guards for suite in recipe.suites}
    parts = content_of([settings, guards, candidate.gate, candidate.held_out, candidate.suites])
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def decide(
    verdict: Verdict,
    settings: GateSettings,
    champion: int | None,
    *,
    grounds: str = "",
    approval: bool = False,
    failed_training: str = "",
    unpinned: str = "",
) -> VerdictRecord:
    """Decide on a candidate from the gate's verdict.

    Args:
        settings: settings of the gate.
        champion: version that the candidate was compared with; None: the base model.
        grounds: digest of what it was judged from (`grounds_of`).
        approval: whether a person must approve a promotion.
        failed_training: why its training was stopped; "" if it was not. It is refused whatever an earlier checkpoint is
            worth.
        unpinned: why no commit contains the run's code and data; "" if one does, or if the recipe allows it.
    """
    decision: Decision
    reason: Reason
    failed = [check for check in verdict.checks if check.failed]
    if failed_training:
        decision, reason = "refused", "training_failed"
    elif failed:
        is_worse = failed[0].name == "better" and math.isfinite(failed[0].value)
        decision, reason = ("kept", "not_better") if is_worse else ("refused", "guard_failed")
    elif unpinned:
        decision, reason = "refused", "not_pinned"
    else:
        decision, reason = "waiting" if approval else "promoted", "better"
    return VerdictRecord(
        decision=decision,
        reason=reason,
        metric=settings.metric,
        champion=champion,
        difference=verdict.difference,
        confidence=settings.confidence,
        checks=verdict.checks,
        detectable=verdict.detectable,
        look=verdict.look,
        grounds=grounds,
        cause=failed_training or (unpinned if reason == "not_pinned" else ""),
    )


def is_lifted(record: VerdictRecord, approval: bool, unpinned: str) -> bool:
    """Return whether a candidate that passed every check was held back for a reason that no longer holds.

    Args:
        approval: whether a person must approve a promotion now.
        unpinned: why no commit contains the run's code and data now; "" if one does, or if the recipe allows it.
    """
    if record.decision == "waiting":
        return not approval
    return record.decision == "refused" and record.reason == "not_pinned" and not unpinned


def numbers(verdict: Verdict) -> dict[str, float]:
    """Return the verdict as metrics of a run; values that are not finite are left out."""
    look = verdict.look
    measured = {
        "gate/difference": verdict.difference.estimate,
        "gate/difference_low": verdict.difference.low,
        "gate/difference_high": verdict.difference.high,
        "gate/detectable_difference": verdict.detectable,
        "gate/look": float(look.number),
        "gate/alpha": look.alpha,
        "gate/error_budget_left": look.left,
    }
    applied = [check for check in verdict.checks if check.state != "not_applicable"]
    passed = {f"gate/{check.name}_passed": float(not check.failed) for check in applied}
    return {key: value for key, value in measured.items() if math.isfinite(value)} | passed


def _suite_guards(
    recipe: JudgementSections, candidate: OnGate, baseline: OnGate, anchor: OnGate | str
) -> tuple[list[GateCheck], list[GateCheck]]:
    """Return the guards of the recipe's suites, against the baseline and against the anchor."""
    guards = {suite.title: suite.guards for suite in recipe.suites if suite.guards}
    fixed = {} if isinstance(anchor, str) else anchor.suites
    answers = {
        title: SuiteAnswers(
            read_scores(Path(candidate.suites[title].folder)),
            read_scores(Path(baseline.suites[title].folder)),
            read_scores(Path(fixed[title].folder)) if title in fixed else None,
        )
        for title in guards
        if title in candidate.suites and title in baseline.suites
    }
    return suite_checks(guards, answers, recipe.gate.confidence, anchored=not isinstance(anchor, str))


def _records(evaluation: StepResult) -> list[PromptRecord]:
    return read_records(Path(evaluation.folder) / "records.parquet")
