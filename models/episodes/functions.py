"""An agent composed of functions: turns of thought, each asked for by its name, before every turn that acts.

    think | 2r1d | act | r | b1 think | 1r1d | act | ...        (Pangu-Agent, paper 160, arXiv 2312.14878)

Intrinsic functions change what the agent remembers, which here is its history, and never the world; the last function
is the action, which the environment takes. The prompt ends with the name of the first, so nothing need be said first.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.episodes.environment import Info, Opened

ACT = "act"
"""Name of the turn that acts."""


class Composed:
    """An episode in which every action stands behind turns of thought. Thoughts earn nothing and have the state of the
    turn that acts."""

    def __init__(self, inner: Opened, thoughts: Sequence[str]) -> None:
        """Nothing is asked yet.

        Args:
            inner: the environment's episode, which reads actions alone.
            thoughts: names of the functions before the action, in their order.
        """
        self._inner, self._names = inner, (*thoughts, ACT)
        self._at, self._info = 0, Info()

    def reset(self, seed: int) -> tuple[str, Info]:
        """What the environment says first."""
        said, self._info = self._inner.reset(seed)
        return said, self._info

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        """The name of the next function; behind an action what the environment says, and then the first name."""
        self._at += 1
        if self._at < len(self._names):
            return self._names[self._at], 0.0, False, False, self._info
        self._at = 0
        said, reward, terminated, truncated, self._info = self._inner.step(turn)
        over = terminated or truncated
        return said if over else f"{said} {self._names[0]}".strip(), reward, terminated, truncated, self._info

    def close(self) -> None:
        """Close the environment's episode."""
        self._inner.close()
