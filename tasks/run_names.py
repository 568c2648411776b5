"""What runs are called: by what came out, so that a list of them answers which nights promoted what.

Pure functions from plain data to a short line.
"""

from __future__ import annotations

from models.evaluation.bootstrap import Interval

LONGEST = 90
"""Characters: a list shows about so many."""

WAITS = "waits for approval"
_VERBS = {"promoted": "promoted", "kept": "not better", "refused": "refused", "waiting": WAITS}


def judged(version: int, decision: str, difference: Interval | None, metric: str) -> str:
    """A training that was judged: `v7 promoted +3.9 [+3.6, +4.2]`.

    Args:
        version: of the policy.
        decision: of the gate, see tasks.description.Decision.
        difference: candidate minus what it was compared with, on the gate's metric; None where it was not measured.
        metric: shares are shown in points of a hundred.
    """
    shown = f" {points(difference, metric)}" if difference is not None else ""
    return f"v{version} {_VERBS.get(decision, decision)}{shown}"


def unchanged(version: int, is_champion: bool) -> str:
    """A training that ended with the weights of an earlier version."""
    return f"nothing changed: v{version}" + (", the champion" if is_champion else "")


def compared(best: str, others: int, middle: Interval, metric: str) -> str:
    """A comparison of methods: `grpo before 5 others: sampled_accuracy 31.0 [28.0, 34.0]`."""
    scale, digits = (100, 1) if is_share(metric) else (1, 3)
    estimate, low, high = (f"{scale * value:.{digits}f}" for value in (middle.estimate, middle.low, middle.high))
    beaten = f"{others} other" + ("s" if others != 1 else "")
    return shortened(f"{best} before {beaten}: {metric} {estimate} [{low}, {high}]")


def stopped(reason: str, killed: bool) -> str:
    """A flow that did not end by itself, or ended with an error."""
    line = " ".join(reason.split())
    return "interrupted" if killed else shortened(f"stopped: {line}")


def points(difference: Interval, metric: str) -> str:
    """A difference with its interval; in points of a hundred where the metric is a share."""
    scale, digits = (100, 1) if is_share(metric) else (1, 3)
    low, middle, high = (scale * value for value in (difference.low, difference.estimate, difference.high))
    return f"{middle:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def is_share(metric: str) -> bool:
    """Whether a metric of the evaluation lies between 0 and 1 and is read as per cent."""
    return metric.endswith("_accuracy") or metric.startswith(("pass_at_", "maj_at_"))


def shortened(name: str) -> str:
    """A name with its end left out where it is too long for a list."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1].rstrip()}…"
