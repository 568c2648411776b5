"""Text adventures: rooms, things and a goal, played by commands (TextWorld, arXiv 1806.11532).

    prompt     First, go east. Next, take the thing8 in room7.
    turn       go east
    reads      -= Room7 =- You are in the room7. There is a thing8 on the floor.
    turn       take thing8

A problem's answer names its game, `NAME.z8` in the folder of games, which a stage of DVC compiles from seeds. The
reward of a turn is the share of the score that it wins, the goal is reached when the game is won, and the valid
commands are listed at every step. A game whose process ends also ends its own episode. The package is an extra:
textworld.lock.
"""

from __future__ import annotations

import re
from pathlib import Path

from models.agents.play.extras import require_extra
from models.agents.play.textworld_games import TextWorldGame, listed
from models.base.bounds import Positive
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.recipe_paths import ContentPath
from models.method.registry import part

_STRANGE = re.compile(r"[^A-Za-z0-9' ,.-]")
"""Characters that no command holds; the interpreter, which is C, cannot handle all of them."""
_META = ("save", "restore", "restart", "quit", "q", "script", "unscript", "transcript", "undo", "verify")


@part("textworld")
class TextWorld(Environment):
    """A compiled game of TextWorld."""

    needs_answers = True
    games: ContentPath = "data/textworld/games"
    """Folder of the compiled games."""
    longest: Positive = 160
    """Maximum length of an answer that the policy reads, characters."""
    first_room: bool = False
    """Whether the policy reads the description of the first room before its first turn; else it has to look."""
    lists: bool = False
    """Whether the policy reads, after an answer, the commands that the game accepts next."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open the game that the problem's answer names.

        Raises:
            UserError: the package is not installed, or the game does not exist.
        """
        require_extra("textworld")
        file = Path(self.games) / f"{problem.answer}.z8"
        if not problem.answer.replace("-", "").isalnum() or not file.is_file():
            raise UserError(
                f"environment textworld: problem {problem.id!r} is about no game of {self.games} "
                f"({problem.answer!r}); `dvc repro data/textworld/dvc.yaml` makes them"
            )
        return _Adventure(TextWorldGame(file, self.longest), self)


class _Adventure:
    def __init__(self, game: TextWorldGame, settings: TextWorld) -> None:
        self._game, self._settings = game, settings

    def reset(self, seed: int) -> tuple[str, Info]:
        room = self._game.begin()
        info: Info = {"state": room, "actions": self._game.commands}
        return self._format_response(room) if self._settings.first_room else "", info

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        command = " ".join(_STRANGE.sub(" ", turn)[:80].split()) or "look"
        if command.split()[0].lower() in _META:  # these are commands of the interpreter, some of which write files
            command = "look"
        text, reward = self._game.do(command)
        info: Info = {"state": text, "actions": self._game.commands, "solved": self._game.won}
        return self._format_response(text), reward, self._game.over, False, info

    def _format_response(self, text: str) -> str:
        return listed(text, self._game.commands) if self._settings.lists else text

    def close(self) -> None:
        self._game.close()
