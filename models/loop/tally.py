"""What a run counts from its first round on: part of every checkpoint, so that a run that goes on counts on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Tally:
    """Counts of all rounds so far."""

    completions: int = 0
    """Completions sampled or read, those included that only try how hard prompts are."""
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By the id of a prompt: rewards of its completions and how many they were, the earlier ones discounted."""
    levels: dict[int, tuple[float, float]] = field(default_factory=dict)
    """The same by the level of the prompt."""
    kept: list[str] | None = None
    """Ids of the prompts that the filter has left; None where there is none, or it has not run yet."""
    order: list[str] = field(default_factory=list)
    """Ids of the prompts of the block of rounds that is under way, the easiest first."""
    token_budget: int | None = None
    """Tokens of a packed row since memory ran out; None: as the recipe says."""
    recompute: bool = False
    """Whether memory has run out, and the policy's layers are read again for their backward pass since."""
    open: list[tuple[int, int]] = field(default_factory=list)
    """Of rollouts in flight (`models.loop.in_flight`): positions of the prompts that were asked for and that no round
    has taken, in their order, and how often each was dropped."""
    skipped: int = 0
    """Optimiser steps in a row, up to the last, that were skipped as they were not finite."""
    shown: dict[str, int] = field(default_factory=dict)
    """By the label of a reward whose companion does not learn every time: how often it was shown completions."""


FILE = "tally.json"
"""Name of its file in a checkpoint."""


def written(tally: Tally) -> bytes:
    """`tally` as JSON, which gives every float back to the last bit."""
    return json.dumps(asdict(tally)).encode()


def read(content: bytes) -> Tally:
    """What `written` wrote."""
    known = json.loads(content)
    pairs = {
        "seen": {name: tuple(pair) for name, pair in known.get("seen", {}).items()},
        "levels": {int(level): tuple(pair) for level, pair in known.get("levels", {}).items()},
        "open": [tuple(pair) for pair in known.get("open", [])],
    }
    return Tally(**known | pairs)
