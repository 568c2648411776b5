"""The policies' answers to the same held-out problems, side by side, deteriorations first.

Pure functions from records to rows of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from models.evaluation.records import PromptRecord

ROLES = ("base", "champion", "candidate")
"""Roles in the order of the columns; the candidate is compared with the champion, or with the base without one."""

_ORDER = ("worse", "better", "both wrong", "both right")


def side_by_side(
    evaluations: Mapping[str, Sequence[PromptRecord]], problems: Mapping[str, Mapping[str, Any]], most: int = 60
) -> list[dict[str, Any]]:
    """Return one row a problem: the change, the truth, and each policy's greedy answer with its share of right samples.

    Args:
        evaluations: role -> records; "candidate" and one other at least. Problems that a role lacks stay empty there.
        problems: id -> row of the data set with prompt and answer.
        most: maximum number of rows; changed ones come first, the largest loss of right samples before smaller ones.
    """
    roles = [role for role in ROLES if role in evaluations]
    by_id = {role: {record.id: record for record in evaluations[role]} for role in roles}
    before = by_id[roles[-2]]
    ranked = []
    for place, record in enumerate(evaluations["candidate"]):
        old = before.get(record.id)
        change = _change(old, record)
        lost = _right(old) - _right(record) if old else 0.0
        ranked.append((_ORDER.index(change), -lost if change != "better" else lost, place, change, record))
    rows = []
    for _, _, _, change, record in sorted(ranked, key=lambda entry: entry[:3])[:most]:
        problem = problems[record.id]
        row: dict[str, Any] = {"change": change, "prompt": problem["prompt"], "truth": problem["answer"]}
        for role in roles:
            other = by_id[role].get(record.id)
            row[role] = other.greedy.text if other else None
            row[f"{role} right"] = round(_right(other), 3) if other else None
        row["level"], row["problem"] = record.level, record.id
        score = record.greedy.reward_score
        row["reward model"] = None if np.isnan(score) else round(score, 3)
        rows.append(row)
    return rows


def _change(old: PromptRecord | None, new: PromptRecord) -> str:
    """Return whether the greedy answer became worse or better, or is both right or both wrong."""
    if old is None or old.greedy.correct == new.greedy.correct:
        return "both right" if new.greedy.correct else "both wrong"
    return "better" if new.greedy.correct else "worse"


def _right(record: PromptRecord | None) -> float:
    """Return the share of right samples, between 0 and 1."""
    if record is None or not record.samples:
        return 0.0
    return sum(sample.correct for sample in record.samples) / len(record.samples)
