"""Names of runs, built from their results, so that a list of runs shows the result of each night.

Pure functions from plain data to a short line.
"""

from __future__ import annotations

from models.evaluation.bootstrap import Interval
from tasks.tracking.verdict_record import VerdictRecord
from tasks.tracking.verdict_text import in_run_name, is_share, points

LONGEST = 90
"""Maximum number of characters of a name: about as many as a list shows."""


def judged(version: int, record: VerdictRecord) -> str:
    """Name a training that was judged: `v7 promoted +3.9 [+3.6, +4.2]`.

    Args:
        version: version of the policy.
        record: its verdict; shares are shown in percentage points.
    """
    shown = f" {points(record.difference, record.metric)}" if record.difference is not None else ""
    return f"v{version} {in_run_name(record)}{shown}"


def unchanged(version: int, is_champion: bool) -> str:
    """Name a training that ended with the weights of an earlier version."""
    return f"nothing changed: v{version}" + (", the champion" if is_champion else "")


def compared(best: str, others: int, middle: Interval, metric: str) -> str:
    """Name a comparison of methods: `grpo before 5 others: sampled_accuracy 31.0 [28.0, 34.0]`."""
    shown = f"{middle.scaled(100):.1f}" if is_share(metric) else f"{middle:.3f}"
    beaten = f"{others} other" + ("s" if others != 1 else "")
    return shortened(f"{best} before {beaten}: {metric} {shown}")


def stopped(reason: str, killed: bool) -> str:
    """Name a flow that was interrupted or ended with an error."""
    line = " ".join(reason.split())
    return "interrupted" if killed else shortened(f"stopped: {line}")


def shortened(name: str) -> str:
    """Return a name, truncated if it is too long for a list."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1].rstrip()}…"
