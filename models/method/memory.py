"""Rollouts of earlier rounds, for sources that replay them: kept by the learner, written into its checkpoints.

Log-probs are stored in safetensors, in the precision that they have, and all else in JSON. Every number is restored to
the last bit, so that a run that resumes replays the same rollouts as an uninterrupted one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load, save

from models.method.problem_rows import places_of, taken
from models.method.rollout import Problem, Rollout
from models.method.turn import Turn

Memory = list[list[Rollout]]
"""Rollouts of earlier rounds, the oldest first, [rounds][completions]."""

FILES = ROLLOUTS, LOG_PROBS = "memory.json", "memory.safetensors"
"""Names of the files in a checkpoint."""
TENSORS = ("behaviour_log_probs", "reference_log_probs")
"""Fields that are tensors; those of all rollouts that have them are concatenated. In JSON: whether one has it."""


def written(memory: Memory) -> dict[str, bytes]:
    """Serialise `memory` into files, by name; of each problem only its id."""
    fields = [[vars(rollout) for rollout in rollouts] for rollouts in memory]
    rows = [
        [{**row, "problem": row["problem"].id, **{name: row[name] is not None for name in TENSORS}} for row in rollouts]
        for rollouts in fields
    ]
    known = {name: [row[name] for rollouts in fields for row in rollouts if row[name] is not None] for name in TENSORS}
    tensors = {name: torch.cat(log_probs) for name, log_probs in known.items() if log_probs}
    return {ROLLOUTS: json.dumps(rows).encode(), LOG_PROBS: save(tensors)}


def read(files: Mapping[str, bytes], problems: Sequence[Problem]) -> Memory:
    """Read the files that `written` returned; the problems are those of `problems` with the same ids."""
    rows: list[list[dict[str, Any]]] = json.loads(files[ROLLOUTS])
    names = {row["problem"] for rollouts in rows for row in rollouts}
    known = {problem.id: problem for problem in taken(problems, places_of(problems, names))}
    tensors = load(files[LOG_PROBS])
    log_probs = {}
    for name in TENSORS:
        lengths = [len(row["completion"]) for rollouts in rows for row in rollouts if row[name]]
        log_probs[name] = iter(tensors[name].split(lengths) if lengths else ())

    def rollout(row: dict[str, Any]) -> Rollout:
        # copies: a part of the whole would keep all of it as long as one rollout is remembered
        said = {name: next(log_probs[name]).clone() if row[name] else None for name in TENSORS}
        plain: dict[str, Any] = {name: _tuple(value) for name, value in row.items()}
        turns = tuple(Turn(*turn) for turn in row["turns"])
        return Rollout(**{**plain, **said, "turns": turns, "problem": known[row["problem"]]})

    return [[rollout(row) for row in rollouts] for rollouts in rows]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
