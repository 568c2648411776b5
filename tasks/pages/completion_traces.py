"""A few sampled completions of each evaluation as traces: the same prompts for every policy. Pure functions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from models.evaluation.records import PromptRecord, turns_of
from tasks.tracking.traces import Trace, shown

MOST = 16
"""Maximum number of completions of an evaluation that become traces."""


def completion_traces(
    evaluations: Mapping[str, Sequence[PromptRecord]],
    problems: Mapping[str, Mapping[str, Any]],
    versions: Mapping[str, str],
    most: int = MOST,
) -> list[Trace]:
    """Return as traces the first sample of each policy for a few prompts, chosen by the hash of their id.

    Args:
        evaluations: role -> records.
        problems: id -> row of the data set with prompt and answer.
        versions: role -> version of the registered policy, for registered ones.
        most: maximum number of prompts of each evaluation.
    """
    traces = []
    for role, measured in evaluations.items():
        answered = [record for record in measured if record.samples and record.id in problems]
        for record in sorted(answered, key=lambda record: drawn(record.id))[:most]:
            sample, problem = record.samples[0], problems[record.id]
            tags = {"role": role, "problem": record.id, "correct": str(sample.correct).lower()}
            if role in versions:
                tags["version"] = versions[role]
            if math.isfinite(sample.reward_score):
                tags["reward"] = f"{sample.reward_score:.4f}"
            inputs = {"prompt": shown(str(problem["prompt"])), "expected": str(problem["answer"])}
            outputs = {"completion": shown(sample.text)}
            traces.append(Trace(f"{role} {record.id}", f"{role} sample", inputs, outputs, tags, turns_of(sample)))
    return traces


def drawn(*names: str) -> str:
    """Return a hash to sort prompts by for a random, reproducible choice that does not depend on the data's order."""
    return hashlib.sha256("\0".join(names).encode()).hexdigest()
