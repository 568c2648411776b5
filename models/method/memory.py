"""Rollouts of earlier rounds, kept in memory for parts that use them again, and written into checkpoints.

Log-probs are stored in safetensors, in the precision that they have, and all else in JSON. Every number is restored to
the last bit, so that a run that resumes replays the same rollouts as an uninterrupted one. Pictures that an environment
drew are stored with the first rollout that has them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load, save

from models.base.images import drawn_among, drawn_reference
from models.method.episode import Turn
from models.method.problem import Problem
from models.method.problem_rows import places_of, taken
from models.method.rollout import Rollout, RolloutEpisode, RolloutSource

Memory = list[list[Rollout]]
"""Rollouts of earlier rounds, the oldest first, [rounds][completions]."""

FILES = ROLLOUTS, LOG_PROBS = "memory.json", "memory.safetensors"
"""Names of the files in a checkpoint."""
PICTURES = "pictures"
"""Key of the pictures of a rollout that no earlier one has, in base64."""
TENSORS = ("behaviour_log_probs", "reference_log_probs")
"""Fields of a rollout that are tensors, stored concatenated; the JSON records which rollouts have them."""


def written(memory: Memory) -> dict[str, bytes]:
    """Serialise `memory`: file name -> content. Of each problem only the id is stored."""
    fields = [[_fields(rollout) for rollout in rollouts] for rollouts in memory]
    rows = [
        [{**row, "problem": row["problem"].id, **{name: row[name] is not None for name in TENSORS}} for row in rollouts]
        for rollouts in fields
    ]
    stored: set[str] = set()
    for row in (row for rollouts in rows for row in rollouts):
        pictures = {name: data for name, data in drawn_among(row["completion"]).items() if name not in stored}
        if pictures:
            stored.update(pictures)
            row[PICTURES] = [base64.b64encode(data).decode("ascii") for data in pictures.values()]
    present = {
        name: [row[name] for rollouts in fields for row in rollouts if row[name] is not None] for name in TENSORS
    }
    tensors = {name: torch.cat(log_probs) for name, log_probs in present.items() if log_probs}
    return {ROLLOUTS: json.dumps(rows).encode(), LOG_PROBS: save(tensors)}


def read(files: Mapping[str, bytes], problems: Sequence[Problem]) -> Memory:
    """Rebuild the memory from the files that `written` returned; its problems are looked up by id in `problems`."""
    rows: list[list[dict[str, Any]]] = json.loads(files[ROLLOUTS])
    for row in (row for rollouts in rows for row in rollouts):
        for data in row.pop(PICTURES, ()):
            drawn_reference(base64.b64decode(data))
    names = {row["problem"] for rollouts in rows for row in rollouts}
    problem_by_id = {problem.id: problem for problem in taken(problems, places_of(problems, names))}
    tensors = load(files[LOG_PROBS])
    log_probs = {}
    for name in TENSORS:
        lengths = [len(row["completion"]) for rollouts in rows for row in rollouts if row[name]]
        log_probs[name] = iter(tensors[name].split(lengths) if lengths else ())

    def rollout(row: dict[str, Any]) -> Rollout:
        # copies: a part of the whole would keep all of it as long as one rollout is remembered
        row_log_probs = {name: next(log_probs[name]).clone() if row[name] else None for name in TENSORS}
        turns = tuple(Turn(*turn) for turn in row["episode"]["turns"])
        groups = {
            "source": RolloutSource(**_tuples(row["source"])),
            "episode": RolloutEpisode(**{**_tuples(row["episode"]), "turns": turns}),
        }
        return Rollout(**{**_tuples(row), **row_log_probs, **groups, "problem": problem_by_id[row["problem"]]})

    return [[rollout(row) for row in rollouts] for rollouts in rows]


def _fields(rollout: Rollout) -> dict[str, Any]:
    """Return the fields of a rollout by name; those of its source and its episode as mappings too."""
    return {**vars(rollout), "source": vars(rollout.source), "episode": vars(rollout.episode)}


def _tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row of JSON with lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
