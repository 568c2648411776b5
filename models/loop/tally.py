"""What a run counts from its first round on: part of every checkpoint, so that a run that goes on counts on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass
class Tally:
    """Counts of all rounds so far."""

    completions: int = 0
    """Completions sampled or read."""


def written(tally: Tally) -> str:
    """`tally` as JSON, which gives every float back to the last bit."""
    return json.dumps(asdict(tally))


def read(text: str) -> Tally:
    """What `written` wrote; of a checkpoint that has none, nothing counted."""
    return Tally(**json.loads(text))
