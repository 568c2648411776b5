"""Verdict records for tests of pages, names and tags."""

import math
from typing import Any

from models.evaluation.bootstrap import Interval
from models.evaluation.gate.budget import next_look
from models.evaluation.gate.checks import GateCheck, State
from tasks.tracking import registry, tags
from tasks.tracking.verdict_record import VerdictRecord, store_decision

LOOK = next_look(2, 0.003, budget=0.05, looks=365)


def check(name: str, state: State, detail: str) -> GateCheck:
    """Make a check without numbers."""
    return GateCheck(name, state, math.nan, math.nan, detail)


def verdict(**changes: Any) -> VerdictRecord:
    """Make the record of a promotion over the champion, version 3, with the given fields changed."""
    plain: dict[str, Any] = {
        "decision": "promoted",
        "reason": "better",
        "metric": "sampled_accuracy",
        "champion": 3,
        "difference": Interval(0.039, 0.036, 0.042),
        "checks": (check("better", "passed", "fine"),),
        "detectable": 0.031,
        "look": LOOK,
    }
    return VerdictRecord(**{**plain, **changes})


def store_verdict(name: str, version: int, record: VerdictRecord) -> None:
    """Store a record and its decision on a version."""
    registry.annotate(name, version, {tags.VERDICT_RECORD: record.model_dump_json()})
    store_decision(registry.version_info(name, version), record.decision)
