"""Games of TextArena (arXiv 2504.11442) for one player: guessing a number, a frozen lake, the towers of Hanoi.

    reads      You have to guess the number between 1 and 20 within 10 turns. ...
    turn       [5]
    reads      The target number is higher.

A game is seeded with the episode's seed. Any problem will do, because the game states its own task. The reward is the
one that the game reports at its end, and the goal is reached if it is at least 1. The package is an extra:
textarena.lock. Its other games need further players, a download, or a judge.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from models.agents.play.extras import extra
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

Result = TypeVar("Result")


@part("textarena")
class TextArena(Environment):
    """A game of TextArena."""

    game: Literal["FrozenLake-v0-random", "GuessTheNumber-v0", "TowerOfHanoi-v0"] = "GuessTheNumber-v0"
    """Name of the game."""

    @property
    def at_once(self) -> bool:
        """Whether episodes may run concurrently: they may not, because all games share the process's random state."""
        return False

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open a game.

        Raises:
            UserError: the package is not installed.
        """
        return _Playing(extra("textarena"), self.game)


class _Playing:
    def __init__(self, textarena: Any, game: str) -> None:
        self._kinds = textarena.ObservationType
        self._game = textarena.make(env_id=f"{game}-raw")
        self._random_state: Any = None

    def reset(self, seed: int) -> tuple[str, Info]:
        self._call_with_own_randomness(lambda: self._game.reset(num_players=1, seed=seed))
        return self._new_messages(), {}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        over, _ = self._call_with_own_randomness(lambda: self._game.step(turn))
        if not over:
            return self._new_messages(), 0.0, False, False, {"solved": False}
        rewards, _ = self._game.close()
        reward = float(rewards[0])
        return self._new_messages(), reward, True, False, {"solved": reward >= 1.0}

    def close(self) -> None:
        return None

    def _new_messages(self) -> str:
        """Return the game's messages since the last turn."""
        _, messages = self._game.get_observation()
        return "\n".join(str(text) for _, text, kind in messages if kind is not self._kinds.PLAYER_ACTION)

    def _call_with_own_randomness(self, call: Callable[[], Result]) -> Result:
        """Return the result of `call`, run with the module `random` in the state in which this game left it."""
        outer_state = random.getstate()
        if self._random_state is not None:
            random.setstate(self._random_state)
        try:
            return call()
        finally:
            self._random_state = random.getstate()
            random.setstate(outer_state)
