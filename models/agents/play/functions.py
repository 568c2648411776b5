"""An agent composed of functions: turns of thought, each requested by its name, before every turn that acts.

    think | 2r1d | act | r | b1 think | 1r1d | act | ...        (Pangu-Agent, paper 160, arXiv 2312.14878)

Intrinsic functions change the agent's memory, which is its history here, and never the world. The last function is the
action, which is passed to the environment. The prompt ends with the name of the first function, so the environment need
not send it.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.method.environment import EnvironmentEpisode, Info

ACT = "act"
"""Name of the turn that acts."""


class Composed:
    """An episode in which turns of thought precede every action.

    Thoughts earn no reward and have the state of the turn that acts. A correction that the environment reports is one
    of thoughts.
    """

    def __init__(self, inner: EnvironmentEpisode, thoughts: Sequence[str]) -> None:
        """Wrap an episode; it is not reset yet.

        Args:
            inner: the environment's episode, which reads actions alone.
            thoughts: names of the functions before the action, in their order.
        """
        self._inner, self._names = inner, (*thoughts, ACT)
        self._at, self._info = 0, Info()

    def reset(self, seed: int) -> tuple[str, Info]:
        """Return the environment's first text."""
        text, self._info = self._inner.reset(seed)
        return text, self._info

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        """Return the name of the next function; after an action, the environment's answer and the first name."""
        self._at += 1
        if self._at < len(self._names):
            acts = self._at == len(self._names) - 1
            info = {key: value for key, value in self._info.items() if not (acts and key == "correction")}
            return self._names[self._at], 0.0, False, False, info
        self._at = 0
        text, reward, terminated, truncated, self._info = self._inner.step(turn)
        over = terminated or truncated
        return text if over else f"{text} {self._names[0]}".strip(), reward, terminated, truncated, self._info

    def close(self) -> None:
        """Close the environment's episode."""
        self._inner.close()
