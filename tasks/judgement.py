"""The gate's judgement of one policy against another: the look is counted, the verdict put into words and numbers.

A candidate is judged so (steps/promote.py), and a champion that somebody set by hand (steps/judge_champion.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.evaluation.gate import GateSettings, Verdict, judge
from models.evaluation.held_out import HeldOutAnswers
from models.evaluation.records import PromptRecord
from models.evaluation.table import read_records
from models.recipe.schema import RewardModelSection
from models.recipe.sections import Sections
from tasks import run_names
from tasks.description import Decision
from tasks.step import StepResult
from tasks.tracking.looks import take_look

ASKED = "rewardflow approve or reject, or a tag approve or reject on its page with NAME: REASON"
"""How a person gives the word that a candidate waits for."""
NOT_PINNED = "not pinned, so nobody could reproduce it"
"""How the reason of a refusal begins that nothing else speaks for."""


@dataclass(frozen=True)
class OnGate:
    """A policy as the gate reads it."""

    gate: StepResult
    """Its evaluation on the gate's problems."""
    held_out: Mapping[str, StepResult] = field(default_factory=dict)
    """Name of a held-out set -> its evaluation on the problems of it."""


class JudgementSections(Sections):
    """What a verdict depends on, beside the evaluations."""

    name: str
    gate: GateSettings
    reward_model: RewardModelSection | None
    promote_unpinned: bool


def judged(
    name: str,
    recipe: JudgementSections,
    candidate: OnGate,
    baseline: OnGate,
    anchor: OnGate | str,
    weights: str,
) -> Verdict:
    """Spend a look at the gate's problems on two evaluations of them.

    Args:
        name: registered model, where the looks are counted.
        anchor: evaluations of the anchor, or why there are none.
        weights: what is looked at; the same against the same as at the last look, and that look goes on.
    """
    compared = f"{weights} against {baseline.gate.links['model_id']}"
    split, sketch = candidate.gate.links["gate_split"], candidate.gate.links["gate_sketch"]
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
    )


def decide(
    verdict: Verdict, approval: bool, compared_with: str, lost: str = "", unpinned: str = ""
) -> tuple[Decision, str]:
    """What becomes of a candidate, and why.

    Args:
        approval: whether a person is asked before it is promoted.
        compared_with: what it was held against.
        lost: why its training was no good, "" where it was.
        unpinned: why nobody could reproduce it, "" where that is no matter.
    """
    if lost:  # whatever an earlier checkpoint is worth, nobody asked for a run that had to be stopped
        return "refused", lost
    failed = [check for check in verdict.checks if check.failed]
    if failed:
        shown_better = failed[0].name != "better" or not math.isfinite(failed[0].value)
        decision: Decision = "refused" if shown_better else "kept"
        reasons = "; ".join(f"{check.name}: {check.detail}" for check in failed)
        return decision, f"{reasons}; {verdict.lines[0]}" if decision == "kept" else reasons
    better = f"better than {compared_with}: {interval(verdict)}, and every guard holds"
    if unpinned:
        return (
            "refused",
            f"{NOT_PINNED}: {unpinned} (promote_unpinned: true allows it); {better}",
        )
    if approval:
        return "waiting", f"{better}; the recipe asks for a person's approval ({ASKED})"
    return "promoted", better


def lifted(said: str, approval: bool, unpinned: str) -> bool:
    """Whether a better candidate was held back only for a reason that is none any more.

    Args:
        said: its verdict, as it stands on the version: the decision, a colon, the reason.
        approval: whether a person is asked now.
        unpinned: why nobody could reproduce it now, "" where that is no matter.
    """
    decision, _, reason = said.partition(": ")
    if decision == "waiting":
        return not approval
    return decision == "refused" and reason.startswith(NOT_PINNED) and not unpinned


def numbers(verdict: Verdict) -> dict[str, float]:
    """The verdict as metrics of a run; what is not finite is left out."""
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


def difference(verdict: Verdict, metric: str) -> str:
    """The difference with its metric and interval, as a page shows it."""
    return f"{metric.replace('_', ' ')} {run_names.points(verdict.difference, metric)}"


def interval(verdict: Verdict) -> str:
    """The difference with its interval, as shares."""
    low, high = verdict.difference.low, verdict.difference.high
    return f"{verdict.difference.estimate:+.3f} [{low:+.3f}, {high:+.3f}]"


def _records(evaluation: StepResult) -> list[PromptRecord]:
    return read_records(Path(evaluation.folder) / "records.parquet")
