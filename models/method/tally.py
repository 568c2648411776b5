"""Counts of a run from its first round on: part of every checkpoint, so that a run that resumes continues them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Tally:
    """Counts of all rounds so far."""

    completions: int = 0
    """Completions sampled or read, including those that only estimate how hard prompts are."""
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For each prompt id: sum of its completions' rewards and their number, the earlier ones discounted."""
    levels: dict[int, tuple[float, float]] = field(default_factory=dict)
    """The same by the level of the prompt."""
    kept: list[str] | None = None
    """Ids of the prompts that the filter has left; None without a filter, or before it has run."""
    order: list[str] = field(default_factory=list)
    """Ids of the prompts of the current block of rounds, the easiest first."""
    token_budget: int | None = None
    """Tokens of a packed row since memory ran out; None: as in the recipe."""
    recompute: bool = False
    """Whether memory has run out, so that the policy's layers are computed again for their backward pass."""
    open: list[tuple[int, int]] = field(default_factory=list)
    """For rollouts in flight (`models.training.in_flight`): positions of the prompts that were requested and that no
    round has taken, in their order, and how often each was dropped."""
    skipped: int = 0
    """Optimiser steps in a row, up to the last, that were skipped because they were not finite."""
    shown: dict[str, int] = field(default_factory=dict)
    """By the label of a reward whose companion does not learn every time: how often it received completions."""


FILE = "tally.json"
"""Name of its file in a checkpoint."""


def written(tally: Tally) -> bytes:
    """Serialise `tally` as JSON, which restores every float to the last bit."""
    return json.dumps(asdict(tally)).encode()


def read(content: bytes) -> Tally:
    """Read a tally from the content that `written` returned."""
    known = json.loads(content)
    pairs = {
        "seen": {name: tuple(pair) for name, pair in known.get("seen", {}).items()},
        "levels": {int(level): tuple(pair) for level, pair in known.get("levels", {}).items()},
        "open": [tuple(pair) for pair in known.get("open", [])],
    }
    return Tally(**known | pairs)
