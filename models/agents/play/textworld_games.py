"""Games of TextWorld (arXiv 1806.11532): made from a seed, compiled, played by text in processes of their own.

The package `textworld` and its compilers and interpreters are not part of the main locks: textworld.lock holds them,
and lists what it compiles.
"""

from __future__ import annotations

import importlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from models.agents.play import textworld_player
from models.agents.play.extras import extra

_BEHIND = re.compile(r"\n>|\*\*\* ")
"""End of a game's answer: its prompt, or its closing banner."""
_SERIAL = slice(0x12, 0x18)
"""Bytes of a story file that hold its date of compilation (The Z-Machine Standards Document, 11.1)."""
_NO_DATE = b"000000"
_GRAMMARS = "text_grammars"


class GameEnded(RuntimeError):
    """Error for a game whose process has ended: its interpreter crashed or took too long."""


@dataclass(frozen=True, kw_only=True)
class TextWorldSize:
    """Parameters of a game."""

    rooms: int
    objects: int
    quest: int
    """Commands that the goal takes."""


def make(seed: int, world: TextWorldSize) -> tuple[Any, Any]:
    """Make a game of rooms, ways and things to take and drop, with its options; the same seed gives the same game. The
    rules and the plain texts are those of TextWorld's own games for collectors of coins."""
    textworld = extra("textworld")
    options = textworld.GameOptions()
    options.kb = _rules()
    options.grammar.theme, options.grammar.allowed_variables_numbering = "basic", True
    options.nb_rooms, options.nb_objects, options.quest_length = world.rooms, world.objects, world.quest
    options.seeds = seed
    return textworld.generator.make_game(options), options


@cache
def _rules() -> Any:
    """Return the collector's rules. They, and the rules shared by all games, are read in the sorted order of their file
    names: games depend on the order, and folders have none."""
    collector = importlib.import_module("textworld.challenges.tw_coin_collector.coin_collector")
    data: Any = importlib.import_module("textworld.generator.data")
    data.KB = _read(Path(data.BUILTIN_DATA_PATH))
    return _read(Path(collector.KB_PATH))


def _read(folder: Path) -> Any:
    logic = importlib.import_module("textworld.logic").GameLogic.load(sorted(map(str, folder.glob("logic/*.twl"))))
    return importlib.import_module("textworld.generator.data").KnowledgeBase(logic, str(folder / _GRAMMARS))


def compile_to(file: Path, game: Any, options: Any) -> None:
    """Compile a game to `file`, NAME.z8, and write its data to NAME.json in the same folder. Neither depends on the
    date or on the folder of the package."""
    options.path, options.force_recompile = str(file), True
    importlib.import_module("textworld.generator").compile_game(game, options)
    file.with_suffix(".ni").unlink(missing_ok=True)
    story = bytearray(file.read_bytes())
    story[_SERIAL] = _NO_DATE
    file.write_bytes(story)
    known = file.with_suffix(".json")
    known.write_text(known.read_text().replace(json.dumps(game.kb.text_grammars_path), json.dumps(_GRAMMARS)))


def listed(heard: str, commands: Sequence[str]) -> str:
    """Return an answer of a game with the commands that it accepts next: `You are in the room7. [go west; look]`."""
    return f"{heard} [{'; '.join(commands)}]"


class TextWorldGame:
    """A compiled game that is being played, in a process of its own.

    Args:
        file: NAME.z8, with NAME.json in the same folder.
        longest: maximum length of an answer that is read, characters.

    Raises:
        GameEnded: its process did not begin; also raised by every call after its process has ended.
    """

    def __init__(self, file: Path, longest: int) -> None:
        self._longest = longest
        self._last: dict[str, Any] = {}
        try:
            self._begin_process(file)
        except GameEnded:  # the process that forks them was about to end
            self._begin_process(file)

    def begin(self) -> str:
        """Begin the game. Returns the description of the first room."""
        self._ask(None)
        return self._heard()

    def do(self, command: str) -> tuple[str, float]:
        """Run a command. Returns its answer, and the share of the maximum score that it won."""
        before = self._last["score"]
        self._ask(command)
        return self._heard(), (self._last["score"] - before) / max(self._last["most"], 1.0)

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that the game accepts now, in order."""
        return tuple(self._last["commands"])

    @property
    def won(self) -> bool:
        """Whether its goal is reached."""
        return bool(self._last["won"])

    @property
    def over(self) -> bool:
        """Whether it is won or lost."""
        return bool(self._last["won"] or self._last["lost"])

    def close(self) -> None:
        """Close the connection, which ends its process."""
        for end in (self._stream, self._socket):
            try:
                end.close()
            except OSError:  # data that could not be written any more
                pass

    def _begin_process(self, file: Path) -> None:
        self._socket = _players().start(file)
        self._stream = self._socket.makefile("rw", encoding="utf-8")
        self.pid = int(self._answer()["pid"])

    def _ask(self, command: str | None) -> None:
        try:
            self._stream.write(json.dumps({"do": command}) + "\n")
            self._stream.flush()
        except OSError:
            raise GameEnded("the game's process ended") from None
        self._last = self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._stream.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            raise GameEnded("the game's process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _heard(self) -> str:
        text = str(self._last["heard"])
        words = " ".join(_BEHIND.split(text.strip(), maxsplit=1)[0].split())
        return words if len(words) <= self._longest else words[: self._longest].rsplit(" ", 1)[0]


class _Players:
    """The program that forks a process for each game; started for the first game, and again after it has ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, file: Path) -> socket.socket:
        """Start a game. Returns this process's end of its socket."""
        mine, theirs = socket.socketpair()
        with theirs, self._lock:
            words = json.dumps({"game": str(file.resolve())}).encode()
            try:
                socket.send_fds(self._control or self._begun(), [words], [theirs.fileno()])
            except OSError:
                socket.send_fds(self._begun(), [words], [theirs.fileno()])
        return mine

    def _begun(self) -> socket.socket:
        if self._control is not None:
            self._control.close()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", textworld_player.__file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._control


@cache
def _players() -> _Players:
    return _Players()
