"""Text adventures: rooms, things and a goal, played by commands (TextWorld, arXiv 1806.11532).

    prompt     Your task for today is to lock the chest with the key.
    turn       look
    heard      You have stumbled into an attic. There is a chest.
    turn       lock chest with key

A problem's answer names its game, `NAME.z8` in the folder of games, which a stage of DVC compiles from seeds. A turn is
worth the share of the score that it wins, the goal is reached where the game says so, and what it understands is listed
at every step. The package is an extra: textworld.lock.
"""

from __future__ import annotations

import re
from pathlib import Path

from models.bounds import Positive
from models.episodes.environment import Environment, Info, Opened
from models.episodes.textworld_games import Game, require_textworld
from models.errors import UserError
from models.loop.rollout import Problem
from models.parts import part

_STRANGE = re.compile(r"[^A-Za-z0-9' ,.-]")
"""What no command holds; the interpreter, which is C, does not bear all of it."""
_META = ("save", "restore", "restart", "quit", "q", "script", "unscript", "transcript", "undo", "verify")


@part("textworld")
class TextWorld(Environment):
    """A compiled game of TextWorld."""

    needs_answers = True
    at_once = False
    games: str = "data/textworld/games"
    """Folder of the compiled games."""
    longest: Positive = 160
    """Characters of an answer that the policy reads."""
    first_room: bool = False
    """Whether the policy reads what the first room is like before its first turn; else it has to look."""

    def open(self, problem: Problem) -> Opened:
        """The game that the problem's answer names.

        Raises:
            UserError: the package is not installed, or there is no such game.
        """
        require_textworld()
        file = Path(self.games) / f"{problem.answer}.z8"
        if not problem.answer.replace("-", "").isalnum() or not file.is_file():
            raise UserError(
                f"environment textworld: problem {problem.id!r} is about no game of {self.games} "
                f"({problem.answer!r}); `dvc repro data/textworld/dvc.yaml` makes them"
            )
        return _Adventure(Game(file, self.longest), self.first_room)


class _Adventure:
    def __init__(self, game: Game, first_room: bool) -> None:
        self._game, self._first_room = game, first_room

    def reset(self, seed: int) -> tuple[str, Info]:
        room = self._game.begin()
        return room if self._first_room else "", {"state": room, "actions": self._game.commands}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        command = " ".join(_STRANGE.sub(" ", turn)[:80].split()) or "look"
        if command.split()[0].lower() in _META:  # they are the interpreter's, some of them write files
            command = "look"
        heard, gained = self._game.do(command)
        info: Info = {"state": heard, "actions": self._game.commands, "solved": self._game.won}
        return heard, gained, self._game.over, False, info

    def close(self) -> None:
        self._game.close()
