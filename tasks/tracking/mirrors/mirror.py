"""What a mirror provides: a run in it that takes params, tags, texts, rows of curves and final metrics.

All methods are called by the thread of the mirror alone. Any exception turns the mirror off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Place:
    """A run's place in a mirror. A resumed step has the place of the run that was interrupted."""

    run_id: str
    """Id in the mirror: that of the MLflow run that opened it."""
    project: str
    """MLflow's experiment: the recipe's name."""
    group: str
    """Name of the flow's run, which its steps share: the recipe and the beginning of the id of the flow's run."""
    step: str
    """Name of the step's run; empty for a flow's."""
    resumed: bool = False
    """Whether the mirror may have a part of the run already."""

    @property
    def name(self) -> str:
        """The name to display: that of the flow's run, with the step."""
        return f"{self.group}/{self.step}" if self.step else self.group

    @property
    def path(self) -> Path:
        """The name as a relative folder."""
        return Path(*(plain(part) for part in (self.group, self.step) if part))


@dataclass(frozen=True)
class MirrorRow:
    """The metrics of a curve that were logged together."""

    position: int
    """Number of rows before it in the journal: a resumed run repeats rows with their positions."""
    step: int
    timestamp: int
    """Milliseconds since 1970."""
    metrics: Mapping[str, float]
    """Finite values, by the keys that MLflow has."""


class MirrorRun(Protocol):
    """A run in a mirror."""

    def params(self, params: Mapping[str, str]) -> None:
        """Add params."""

    def tags(self, run_tags: Mapping[str, str]) -> None:
        """Set tags."""

    def text(self, name: str, text: str) -> None:
        """Add a text, such as the recipe's file."""

    def row(self, row: MirrorRow) -> None:
        """Add a row of a curve. A position that the mirror has already replaces the earlier row, or is ignored."""

    def final(self, step: int, timestamp: int, metrics: Mapping[str, float]) -> None:
        """Add metrics that do not belong to a curve."""

    def flush(self) -> None:
        """Write what is buffered. Called as soon as nothing waits, so that the mirror is live."""

    def close(self, finished: bool) -> None:
        """End the run; `finished`: without an error, so that it is never resumed."""


def plain(name: str) -> str:
    """Return a name without characters that a file or a project cannot have."""
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "run"


def number_or_text(text: str) -> float | str:
    """Return a param as a number if it is written as one, so that a mirror can sort and plot it."""
    try:
        return float(text)
    except ValueError:
        return text
