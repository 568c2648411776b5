"""Comparison of the evaluations of two model versions or runs: metrics with intervals, and answers that flipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.datasets.row_diff import Place, same_prompts
from models.evaluation.flips import Flips, flips
from models.evaluation.gate.paired_change import MetricChange, metric_changes
from models.evaluation.metrics import known_metric, samples_needed
from models.evaluation.records import PromptRecord
from models.evaluation.table import read_records
from tasks.data.data_difference import PreparedFiles
from tasks.tracking import records, tags
from tasks.tracking.recorded import RECORDS, VersionRecord

SHOWN: Place = ("problems", "validation")
"""Kind and split of the problems whose answers people may see, unlike those of the gate's problems."""
METRICS = "eval/"
"""Prefix of an evaluation's metrics."""


@dataclass(frozen=True)
class FlippedAnswer:
    """A prompt whose greedy answer was right in one evaluation and wrong in the other."""

    id: str
    prompt: str
    """Empty if the data are not available."""
    expected: str
    before: str
    after: str


@dataclass(frozen=True)
class EvaluationDifference:
    """Difference between two evaluations."""

    metrics: tuple[MetricChange, ...] = ()
    flips: Flips | None = None
    """None if the answers of one of the two are not recorded, or no prompt is known to be in both."""
    worse: tuple[FlippedAnswer, ...] = ()
    """Prompts answered right before, wrong now."""
    better: tuple[FlippedAnswer, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be compared, with the reason."""


def evaluation_difference(
    before: VersionRecord, after: VersionRecord, old: PreparedFiles, new: PreparedFiles
) -> EvaluationDifference:
    """Compare the evaluation of `after` with that of `before`.

    Args:
        before: the older.
        after: the newer.
        old: the data of the older, by which prompts are matched if their ids differ.
        new: the data of the newer.
    """
    answered, theirs = read_answers(before), read_answers(after)
    if answered is None or theirs is None:
        missing = before if answered is None else after
        return EvaluationDifference(notes=(f"what {missing.label} answered is not on record: no metrics, no flips",))
    flipped, pairs = flips(answered, theirs, _same_prompts(old, new))
    notes = []
    if not pairs:
        notes.append("no prompt is known to be in both evaluations: the metrics are not paired, and nothing flipped")
    elif flipped.left_out:
        notes.append(f"{flipped.left_out:,} prompts that one of the two alone was measured on are left out")
    names = metric_names(after.metrics.keys() & before.metrics.keys(), (*answered, *theirs))
    judges = [side.facts.get(tags.REWARD_MODEL_VERSION, "") or "no reward model" for side in (before, after)]
    if judges[0] != judges[1] and "reward_score" in names:
        names.remove("reward_score")
        notes.append(f"reward_score is left out: that of {judges[0]} cannot be compared with that of {judges[1]}")
    return EvaluationDifference(
        metrics=tuple(metric_changes(names, answered, theirs, pairs)),
        flips=flipped if pairs else None,
        worse=_flipped(flipped.worse, pairs, new),
        better=_flipped(flipped.better, pairs, new),
        notes=tuple(notes),
    )


def metric_names(known: Iterable[str], records: Sequence[PromptRecord]) -> list[str]:
    """Return the names of the logged metrics that can be recomputed for each prompt, sorted.

    Args:
        known: keys of a run's metrics.
        records: the answers.
    """
    fewest = min(len(record.samples) for record in records)
    names = sorted(key.removeprefix(METRICS) for key in known if key.startswith(METRICS))
    return [name for name in names if known_metric(name) and samples_needed(name) <= fewest]


def read_answers(side: VersionRecord) -> list[PromptRecord] | None:
    """Return the answers of a version or a run's policy; None if they are not recorded."""
    if not side.evaluation:
        return None
    with tempfile.TemporaryDirectory() as scratch:
        file = records.fetch_artifact(side.evaluation, RECORDS, Path(scratch))
        return read_records(file) if file is not None else None


def _same_prompts(old: PreparedFiles, new: PreparedFiles) -> dict[str, str] | None:
    """Return newer id -> older id of each common prompt; None if ids mean the same prompts in both."""
    if old.hashes.get(SHOWN) == new.hashes.get(SHOWN):
        return None
    if not (old.has(SHOWN) and new.has(SHOWN)):
        return {}
    return same_prompts(old.marks(SHOWN), new.marks(SHOWN))


def _flipped(
    ids: Sequence[str], pairs: Sequence[tuple[PromptRecord, PromptRecord]], new: PreparedFiles
) -> tuple[FlippedAnswer, ...]:
    known = {newer.id: (older, newer) for older, newer in pairs}
    rows = new.rows(SHOWN, ids) if ids and new.has(SHOWN) else {}
    return tuple(
        FlippedAnswer(
            id=name,
            prompt=rows.get(name, {}).get("prompt", ""),
            expected=rows.get(name, {}).get("answer", ""),
            before=known[name][0].greedy.text,
            after=known[name][1].greedy.text,
        )
        for name in ids
    )
