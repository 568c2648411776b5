"""What a run counts from its first round on: part of every checkpoint, so that a run that goes on counts on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass
class Tally:
    """Counts of all rounds so far."""

    completions: int = 0
    """Completions sampled or read."""


FILE = "tally.json"
"""Name of its file in a checkpoint."""


def written(tally: Tally) -> bytes:
    """`tally` as JSON, which gives every float back to the last bit."""
    return json.dumps(asdict(tally)).encode()


def read(content: bytes) -> Tally:
    """What `written` wrote."""
    return Tally(**json.loads(content))
