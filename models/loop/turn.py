"""A turn of an episode: what the policy wrote in one go, and what the environment made of it."""

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
    """What the policy wrote in one go, and what came of it."""

    start: int
    """Its first token in the completion."""
    stop: int
    """Behind its last."""
    reward: float = 0.0
    """What the environment gave for it."""
    state: str = ""
    """What it was taken in, as the environment says."""
    seconds: float = 0.0
    """What the environment took to answer. Differs from run to run: nothing that is trained on goes by it, unless the
    recipe asks for just that."""
    said: str = ""
    """What the policy wrote, as text."""
    heard: str = ""
    """What the environment said in return, whether or not the policy read it."""
    duration: float = 0.0
    """What its action takes, in seconds, as the environment declares; the same in every run."""


def transcript(turns: Sequence[Turn]) -> str:
    """An episode of several turns for the eye, who said what on lines of their own; empty where one turn was all."""
    if len(turns) < 2:
        return ""
    return "\n".join(f"policy: {turn.said}" + (f"\nenvironment: {turn.heard}" if turn.heard else "") for turn in turns)
