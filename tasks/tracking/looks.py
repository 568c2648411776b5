"""Count of the looks (judgements) at a gate split, in the registry, so that all machines share one error budget.

Each split has one tag of the registered model, under its digest. A split that shares problems with one that was looked
at, as after a few new rows, continues its count of looks. Any other split has no tag yet, and its budget is whole. A
look is counted before it is taken, so a run that is killed in between has spent it, unless the next run compares the
same weights with the same baseline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from models.evaluation.gate.budget import Look
from tasks.gate.gate_split import estimated_overlap
from tasks.tracking import lock, registry, store, tags


class Budgeted(Protocol):
    """Settings that divide an error budget over looks, such as models.evaluation.gate.gate.GateSettings."""

    def next_look(self, looked: int = 0, spent: float = 0.0) -> Look: ...


OUTGROWN = 0.9
"""Minimum share of common problems for this split's tag to replace the other's, so that growing data keep one tag."""
SHARED = 0.1
"""Minimum share of common problems for a split to continue the count of looks of another."""


@dataclass(frozen=True)
class CountedLook:
    """A look, and the changes of the counts that it makes."""

    look: Look
    entry: dict[str, Any]
    """New count of the split."""
    outgrown: tuple[str, ...]
    """Splits whose counts this one replaces."""


def count_look(
    splits: Mapping[str, Mapping[str, Any]], key: str, sketch: str, compared: str, settings: Budgeted
) -> CountedLook:
    """Return the next look at a split. Nothing is stored.

    Args:
        splits: key of a split -> its count, as in `CountedLook.entry`.
        key: key of this split.
        sketch: sketch of its problems, which identifies splits that share problems (tasks/gate/gate_split.py).
        compared: text that identifies both policies. If it is the same as at the last look, that look is continued.
        settings: divides the error budget over looks.
    """
    common = {other: estimated_overlap(split.get("sketch", ""), sketch) for other, split in splits.items()}
    known = splits.get(key, {})
    if known.get("compared") == compared:
        looked, spent = int(known["looks"]) - 1, float(known["before"])
    else:
        seen = [known, *(split for other, split in splits.items() if common[other] >= SHARED)]
        looked = max(int(split.get("looks", 0)) for split in seen)
        spent = max(float(split.get("spent", 0.0)) for split in seen)
    look = settings.next_look(looked, spent)
    entry = {"looks": look.number, "spent": look.spent, "before": spent, "compared": compared, "sketch": sketch}
    return CountedLook(look, entry, tuple(o for o in splits if o != key and common[o] >= OUTGROWN))


def take_look(name: str, gate_split: str, sketch: str, compared: str, settings: Budgeted) -> Look:
    """Count a look at a gate split, and return it with its number and the error probability that it may spend.

    Args:
        name: registered model; created if it is missing.
        gate_split: digest of the split's problems.
        sketch: sketch of the same problems; see `count_look`.
        compared: text that identifies both policies; see `count_look`.
        settings: the recipe's gate.
    """
    key = tags.LOOKS + gate_split
    with lock.registry_lock(name) as lease:
        splits = {
            other: json.loads(value)
            for other, value in registry.model_tags(name).items()
            if other.startswith(tags.LOOKS)
        }
        counted = count_look(splits, key, sketch, compared, settings)
        registry.make_model(name)
        lease.write(store.client().set_registered_model_tag, name, key, json.dumps(counted.entry))
        for other in counted.outgrown:
            registry.delete_model_tag(name, other)
    return counted.look
