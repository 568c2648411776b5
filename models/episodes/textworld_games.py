"""Games of TextWorld (arXiv 1806.11532): made by a seed, compiled, played by text.

The package `textworld` and what it compiles games and runs them with are no part of the locks: textworld.lock holds
them, and says what it compiles.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from models.errors import UserError

_BEHIND = re.compile(r"\n>|\*\*\* ")
"""Where a game's answer ends: its prompt, or its last curtain."""


def require_textworld() -> Any:
    """The package.

    Raises:
        UserError: it is not installed.
    """
    try:
        return importlib.import_module("textworld")
    except ImportError:
        raise UserError(
            "environment textworld: the package is not installed: pip install --no-deps -r textworld.lock"
        ) from None


def make(seed: int, rooms: int, objects: int, quest: int) -> tuple[Any, Any]:
    """A game of so many rooms and objects whose goal takes `quest` commands, and the options it was made with; the
    same seed gives the same."""
    textworld = require_textworld()
    options = textworld.GameOptions()
    options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest
    options.seeds = seed
    return textworld.generator.make_game(options), options


def compile_to(file: Path, game: Any, options: Any) -> None:
    """Compile a game to `file`, NAME.z8; NAME.json beside it holds what is known of it."""
    options.path, options.force_recompile = str(file), True
    require_textworld().generator.compile_game(game, options)
    file.with_suffix(".ni").unlink(missing_ok=True)


class Game:
    """A compiled game that is being played.

    Args:
        file: NAME.z8, with NAME.json beside it.
        longest: characters of an answer that are read.
    """

    def __init__(self, file: Path, longest: int) -> None:
        textworld = require_textworld()
        wanted = textworld.EnvInfos(
            admissible_commands=True, won=True, lost=True, score=True, max_score=True, description=True
        )
        self._longest = longest
        self._env = textworld.start(str(file), wanted)
        self._state: Any = None

    def begin(self) -> str:
        """The first room."""
        self._state = self._env.reset()
        return self._read(str(self._state.description))

    def do(self, command: str) -> tuple[str, float]:
        """What comes of a command, and what share of the score it won."""
        before = float(self._state.score)
        self._state, _, _ = self._env.step(command)
        gained = (float(self._state.score) - before) / max(float(self._state.max_score), 1.0)
        return self._read(str(self._state.feedback)), gained

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that the game understands now, in order."""
        return tuple(sorted(self._state.admissible_commands or ()))

    @property
    def won(self) -> bool:
        """Whether its goal is reached."""
        return bool(self._state.won)

    @property
    def over(self) -> bool:
        """Whether it is won or lost."""
        return bool(self._state.won or self._state.lost)

    def close(self) -> None:
        """End the interpreter."""
        self._env.close()

    def _read(self, text: str) -> str:
        words = " ".join(_BEHIND.split(text.strip(), maxsplit=1)[0].split())
        return words if len(words) <= self._longest else words[: self._longest].rsplit(" ", 1)[0]
