"""One measured line: ours, the peer's, the ratio, and whether it meets the target. As a table and as JSON."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from models.base.atomic_write import write_file


@dataclass(frozen=True)
class Row:
    """A line of the table. `ratio` is always better when larger, whatever the unit."""

    measure: str
    ours: float
    peer: float | None
    """Figure of the peer; None if the peer is not installed or could not do it."""
    unit: str
    ratio: float | None
    """Ratio of improvement over the peer; None without a peer."""
    at_least: float | None
    """Target ratio; None: no target."""
    met: bool
    against: str = ""
    """Description of the peer."""
    wanted: str = ""
    """`at_least` in words, if the number alone is not clear."""
    reason: str = ""
    """Reason why the target is missed, or why the peer is missing."""
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The raw values behind the medians."""
    details: Mapping[str, Any] = field(default_factory=dict)


def compare(
    measure: str,
    ours: Sequence[float],
    peer: Sequence[float] | None,
    unit: str,
    at_least: float | None,
    *,
    smaller_is_better: bool = False,
    short: str = "",
    against: str = "TRL",
    wanted: str = "",
    details: Mapping[str, Any] | None = None,
) -> Row:
    """Make a row from raw samples: medians, their ratio, and the verdict.

    Args:
        ours: samples of this project, in `unit`.
        peer: samples of the peer, None if it could not be measured.
        at_least: ratio to be reached; None without a target.
        smaller_is_better: true for seconds and bytes: the ratio is then peer / ours.
        short: the reason that is reported if the ratio is not reached.
    """
    mine = statistics.median(ours)
    theirs = statistics.median(peer) if peer else None
    ratio = None
    if theirs is not None:
        above, below = (theirs, mine) if smaller_is_better else (mine, theirs)
        ratio = above / below if below else None
    met = ratio is not None and (at_least is None or ratio >= at_least)
    samples = {"ours": list(ours), **({"peer": list(peer)} if peer else {})}
    reason = "" if met else (short or ("not measured: no peer" if ratio is None else "below the mark"))
    return Row(measure, mine, theirs, unit, ratio, at_least, met, against, wanted, reason, samples, dict(details or {}))


def unmeasured(measure: str, unit: str, reason: str, at_least: float | None = None, wanted: str = "") -> Row:
    """Make a row without figures, with the reason; it does not meet a target."""
    return Row(measure, 0.0, None, unit, None, at_least, False, wanted=wanted, reason=reason)


def table(rows: Sequence[Row]) -> str:
    """Format the rows as text, one line each, with reasons below the table."""
    head = ["measure", "ours", "peer", "unit", "ratio", "at least", "met"]
    cells = [
        [
            row.measure,
            _number(row.ours),
            _number(row.peer),
            row.unit,
            _number(row.ratio),
            row.wanted or _number(row.at_least),
            "" if row.at_least is None else "yes" if row.met else "NO",
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in [head, *cells]]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, *(f"  {row.measure}: {row.reason}" for row in rows if row.reason)])


def write(path: Path, name: str, machine: Mapping[str, Any], rows: Sequence[Row], settings: Mapping[str, Any]) -> None:
    """Write one benchmark's result, whole or not at all."""
    content = {"name": name, "machine": machine, "settings": settings, "rows": [plain(asdict(row)) for row in rows]}
    write_file(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def read(path: Path) -> list[Row]:
    """Read the rows of a written result."""
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]


def plain(value: Any, digits: int = 6) -> Any:
    """Convert a value for JSON, which has no infinity, with no more digits than were measured."""
    if isinstance(value, dict):
        return {str(name): plain(inner, digits) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, digits) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
