"""Rollouts of earlier rounds, for sources that replay them: kept by the learner, written into its checkpoints.

As JSON, which gives every float back to the last bit, so that a run that goes on replays what the other one did.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from models.loop.rollout import Problem, Rollout

Memory = list[list[Rollout]]
"""Rollouts of earlier rounds, the oldest first, [rounds][completions]."""

_ROLLOUTS: TypeAdapter[list[list[Rollout]]] = TypeAdapter(list[list[Rollout]])


def written(memory: Memory) -> str:
    """`memory` as JSON; of each problem only its id."""
    rows: list[list[dict[str, Any]]] = _ROLLOUTS.dump_python(memory, mode="json")
    for rounds in rows:
        for row in rounds:
            row["problem"] = {"id": row["problem"]["id"], "prompt": ""}
    return json.dumps(rows)


def read(text: str, problems: Sequence[Problem]) -> Memory:
    """What `written` wrote; the problems are those of `problems` with the same ids."""
    known = {problem.id: problem for problem in problems}
    return [
        [replace(rollout, problem=known[rollout.problem.id]) for rollout in rollouts]
        for rollouts in _ROLLOUTS.validate_json(text)
    ]
