"""The sentences about a verdict, rendered from its record. They are never parsed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from models.evaluation.bootstrap import Interval
from models.evaluation.gate.gate import comparison_notes
from tasks.tracking.verdict_record import Decision, HandJudgement, Ruling, VerdictRecord

Outcome = Decision | Literal["trained", "unchanged"]
"""Outcome of a training run: the gate's decision, or why there was nothing to decide."""
HOW_TO_RULE = "rewardflow approve or reject, or a tag approve or reject on its page with NAME: REASON"
"""How a person approves or rejects a candidate."""
NOT_PINNED = "not pinned, so it cannot be reproduced"


@dataclass(frozen=True)
class OutcomeText:
    """Words for an outcome on pages and in lists."""

    headline: str
    """First words of a page."""
    in_run_name: str
    """Words in the name of a run."""
    by_hand: str = ""
    """Words about a champion that was set by hand."""


OUTCOMES: Mapping[Outcome, OutcomeText] = {
    "promoted": OutcomeText("✔ Promoted", "promoted", "the gate would have promoted it"),
    "kept": OutcomeText("= Not better", "not better", "the gate would not have promoted it"),
    "refused": OutcomeText("✘ Refused", "refused", "the gate would have refused it"),
    "waiting": OutcomeText("… Waiting for approval", "waits for approval"),
    "trained": OutcomeText("○ Trained, not judged", "trained"),
    "unchanged": OutcomeText("= Nothing changed", "nothing changed"),
}


def headline(record: VerdictRecord) -> str:
    """Return the first words of a page about a judged version."""
    return "Passed the gate" if record.ruling is not None else OUTCOMES[record.decision].headline


def in_run_name(record: VerdictRecord) -> str:
    """Return the words for a verdict that the name of a run contains, such as `promoted`."""
    if record.ruling is not None:
        return "approved" if record.ruling.approved else "rejected"
    return OUTCOMES[record.decision].in_run_name


def baseline_text(champion: int | None) -> str:
    """Return the words for the policy that a candidate was compared with: the base model, or a champion's version."""
    return "the base model" if champion is None else f"champion, version {champion}"


def verdict_text(record: VerdictRecord) -> str:
    """Return decision and reason in one sentence."""
    return f"{record.decision}: {reason_text(record)}"


def reason_text(record: VerdictRecord) -> str:
    """Return the reason of the decision in one sentence."""
    if record.ruling is not None:
        reject = "" if record.ruling.approved else f": {record.ruling.why}"
        what = "approved" if record.ruling.approved else "rejected"
        return f"{what} by {record.ruling.by}{reject}; the gate: {_gate_text(record)}"
    text = _gate_text(record)
    if record.decision == "waiting":
        return f"{text}; the recipe asks for a person's approval ({HOW_TO_RULE})"
    return text


def ruling_text(ruling: Ruling) -> str:
    """Return who approved or rejected a candidate, why and when."""
    return f"{'Approved' if ruling.approved else 'Rejected'} by {ruling.by}: {ruling.why} ({ruling.at})"


def difference_text(record: VerdictRecord) -> str:
    """Return the difference with its metric and interval as a page shows it; empty if it was not measured."""
    if record.difference is None:
        return ""
    return f"{record.metric.replace('_', ' ')} {points(record.difference, record.metric)}"


def improvement_text(record: VerdictRecord) -> str:
    """Return the difference with its metric and interval as a tag shows it; empty if it was not measured."""
    return "" if record.difference is None else f"{record.metric} {record.difference:+.3f}"


def notes(record: VerdictRecord) -> list[str]:
    """Return the power of the comparison and the error budget that is left, one sentence each."""
    return [] if record.look is None else comparison_notes(record.detectable, record.look)


def hand_text(judgement: HandJudgement) -> str:
    """Return the judgement of a champion that was set by hand in one sentence."""
    if judgement.verdict is None:
        return f"version {judgement.version}: {judgement.problem}"
    words = OUTCOMES[judgement.verdict.decision].by_hand
    return f"version {judgement.version}: {words}: {reason_text(judgement.verdict)}"


def points(difference: Interval, metric: str) -> str:
    """Return a difference with its interval; as percentage points if the metric is a share."""
    return f"{difference.scaled(100):+.1f}" if is_share(metric) else f"{difference:+.3f}"


def is_share(metric: str) -> bool:
    """Return whether a metric of the evaluation is between 0 and 1 and is read as a percentage."""
    return metric.endswith("_accuracy") or metric.startswith(("pass_at_", "maj_at_"))


def _gate_text(record: VerdictRecord) -> str:
    """Return the gate's own reason, without a person's ruling."""
    if record.earlier_text:
        return record.earlier_text
    failed = "; ".join(f"{check.name}: {check.detail}" for check in record.checks if check.failed)
    if record.reason == "training_failed":
        return record.cause
    if record.reason == "not_better":
        return "; ".join([failed, *notes(record)[:1]])
    if record.reason == "guard_failed":
        return failed
    shown = f": {record.difference:+.3f}" if _is_known(record.difference) else ""
    better = f"better than {baseline_text(record.champion)}{shown}, and every guard holds"
    if record.reason == "not_pinned":
        return f"{NOT_PINNED}: {record.cause} (promote_unpinned: true allows it); {better}"
    return better


def _is_known(difference: Interval | None) -> bool:
    return difference is not None and math.isfinite(difference.estimate)
