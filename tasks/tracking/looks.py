"""Looks at a gate split, counted in the registry: every machine that judges spends the same error budget.

One tag of the registered model a split, under its digest. A new split has no tag yet, so its budget is whole. A look is
counted before it is taken: a run that is killed in between has spent it, unless the next one looks at the same weights.
"""

from __future__ import annotations

import json
from typing import Protocol

from models.evaluation.budget import Look
from tasks.tracking import lock, registry, tags


class Budgeted(Protocol):
    """Settings that say what the next look may spend: models.evaluation.gate.GateSettings."""

    def next_look(self, looked: int = 0, spent: float = 0.0) -> Look: ...


def take_look(name: str, gate_split: str, weights: str, settings: Budgeted) -> Look:
    """Count a look at a gate split and say what it may spend.

    Args:
        name: registered model; made where it is missing.
        gate_split: digest of the split's problems.
        weights: digest of the candidate's weights. The same as last time: that look goes on.
        settings: the recipe's gate.
    """
    key = tags.LOOKS + gate_split
    with lock.held(name):
        known = json.loads(registry.model_tags(name).get(key, "{}"))
        looked, spent = int(known.get("looks", 0)), float(known.get("spent", 0.0))
        if known.get("weights") == weights:
            looked, spent = looked - 1, float(known["before"])
        look = settings.next_look(looked, spent)
        counted = {"looks": look.number, "spent": look.spent, "before": spent, "weights": weights}
        registry.set_model_tag(name, key, json.dumps(counted))
    return look
