"""A turn of an episode: the policy's text of one turn, and the environment's response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Cut = Literal["", "tokens", "turns", "time", "error"]
"""Why an episode did not end by itself.

tokens: a turn, or the episode, was as long as it may be
turns: it had as many turns as it may have
time: the environment took longer for an answer than it may
error: the environment failed
"""


class Turn(NamedTuple):
    """The policy's text of one turn, and the environment's response."""

    start: int
    """First token of the turn in the completion."""
    stop: int
    """End of the turn, exclusive."""
    reward: float = 0.0
    """Reward of the environment for the turn."""
    state: str = ""
    """State in which the turn was taken, as the environment reports it."""
    seconds: float = 0.0
    """Time of the environment's answer, seconds. It differs from run to run: training does not depend on it, unless the
    recipe requests exactly that."""
    said: str = ""
    """The policy's text."""
    heard: str = ""
    """The environment's answer, whether or not the policy read it."""
    duration: float = 0.0
    """Duration of its action, seconds, as the environment declares; the same in every run."""


def transcript(turns: Sequence[Turn]) -> str:
    """Format an episode of several turns for inspection, each speaker on its own lines; empty for a single turn."""
    if len(turns) < 2:
        return ""
    return "\n".join(f"policy: {turn.said}" + (f"\nenvironment: {turn.heard}" if turn.heard else "") for turn in turns)
