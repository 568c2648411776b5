"""Held-out prompts that one policy answers right and another wrong, compared by greedy answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.evaluation.records import PromptRecord


@dataclass(frozen=True)
class Flips:
    """Prompts whose greedy answer became wrong or right, by the ids of the newer evaluation and in its order."""

    worse: tuple[str, ...]
    """Right before, wrong now."""
    better: tuple[str, ...]
    """Wrong before, right now."""
    compared: int
    """Prompts that both evaluations have."""
    left_out: int
    """Prompts that only one of the two evaluations has."""


def flips(
    old: Sequence[PromptRecord], new: Sequence[PromptRecord], same: Mapping[str, str] | None = None
) -> tuple[Flips, list[tuple[PromptRecord, PromptRecord]]]:
    """Return the flips, and the pairs of records, older and newer, of the prompts that both evaluations have.

    Args:
        old: the older evaluation.
        new: the newer one.
        same: newer id -> older id of the same prompt; None: an id means the same prompt in both.
    """
    known = {record.id: record for record in old}
    pairs = []
    for record in new:
        partner = known.get(record.id if same is None else same.get(record.id, ""))
        if partner is not None:
            pairs.append((partner, record))
    worse = tuple(newer.id for older, newer in pairs if older.greedy.correct and not newer.greedy.correct)
    better = tuple(newer.id for older, newer in pairs if newer.greedy.correct and not older.greedy.correct)
    return Flips(worse, better, len(pairs), len(old) + len(new) - 2 * len(pairs)), pairs
