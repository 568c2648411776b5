"""Counts of a run since its first round; every checkpoint includes them, so that a run that resumes continues them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field


@dataclass
class Tally:
    """Counts of all rounds so far."""

    completions: int = 0
    """Number of completions sampled or read so far, including those that only measure how hard prompts are."""
    seen: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Prompt id -> sum and number of its completions' rewards, the earlier ones discounted."""
    levels: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Level of prompts -> the same."""
    kept: list[str] | None = None
    """Ids of the prompts that passed the filter; None without a filter, or before it has run."""
    order: list[str] = field(default_factory=list)
    """Ids of the prompts of the current block of rounds, the easiest first."""
    token_budget: int | None = None
    """Smaller limit of tokens of a packed row, since memory ran out; None: that of the recipe."""
    recompute: bool = False
    """Whether the policy's layers are computed again for their backward pass, since memory ran out."""
    open: list[tuple[int, int]] = field(default_factory=list)
    """For rollouts in flight (`models.training.in_flight`): positions of the prompts that were requested but that no
    round has used yet, in order, each with how often it was dropped."""
    skipped: int = 0
    """Number of consecutive optimiser steps, up to the last, that were skipped because they were not finite."""
    shown: dict[str, int] = field(default_factory=dict)
    """Label of a reward that does not do the same in every round -> how often it has received completions."""
    archives: dict[str, dict[str, int]] = field(default_factory=dict)
    """Label of a reward that remembers texts -> each text, in order of its first occurrence, and its number
    of occurrences."""
    labels: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """Label of a reward that remembers verdicts -> prompt -> completion, in order of its first verdict -> its value."""

    def archived(self, label: str, texts: Iterable[str] = ()) -> dict[str, int]:
        """Add texts to the archive of the reward `label`, and return the archive."""
        archive = self.archives.setdefault(label, {})
        for text in texts:
            archive[text] = archive.get(text, 0) + 1
        return archive


FILE = "tally.json"
"""Name of the tally's file in a checkpoint."""


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
