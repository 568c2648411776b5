"""Callbacks through which a training reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.learner.precision import Precision


@dataclass(frozen=True)
class Watchers:
    """Callbacks that receive a training's metrics, sample tables and events. The loop itself logs nothing."""

    metrics: Callable[[int, dict[str, float]], None] = lambda round_number, metrics: None
    samples: Callable[[int, list[dict[str, object]]], None] = lambda round_number, rows: None
    resumed: Callable[[int], None] = lambda round_number: None
    """Called once before the first round, with the number of rounds that earlier runs have finished."""
    proceed: Callable[[], None] = lambda: None
    """Called before every round; an exception that it raises ends the training."""
    opened: Callable[[Precision, str], None] = lambda precision, shape: None
    """Called once before the first round, with the precision that the policy learns in and the key of its shape
    (`models.learner.precision.shape_of`)."""
