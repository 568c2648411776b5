"""An answer to a problem, as whoever decides whether it is right sees it: in the loop as in evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from models.loop.rollout import Problem


class Attempt(NamedTuple):
    """What was answered to a problem."""

    problem: Problem
    text: str
    finished: bool
    """Whether it ended by itself and was not cut."""


Verify = Callable[[Sequence[Attempt]], list[bool]]
"""Which attempts are right, [attempts]."""
