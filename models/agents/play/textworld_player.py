"""Program that plays compiled games, each in a process of its own, for `models.agents.play.textworld_games`.

    python -P models/agents/play/textworld_player.py FD

The interpreter of the games is C, keeps its state in one place and crashes on some inputs of a player. It therefore
runs in processes that do nothing else. This program loads the package once, and forks for every game that is requested
over the socket FD. A game's process ends with its game, with a crash of the interpreter, or if a command takes too
long; all of them end when the process with the other ends of their sockets ends.

    asked       {"game": "NAME.z8"} and a socket, as a file descriptor
    over that   {"do": null} begins, {"do": "go east"} plays; a line of JSON each
    answered    {"heard", "commands", "score", "most", "won", "lost"}; first of all {"pid"}
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

SECONDS = 60
"""Seconds that a command may take before the game's process is ended. The caller has a limit of its own, usually
shorter."""
_LONGEST = 4096
"""Maximum size of a request for a game, bytes."""


def main(control: socket.socket) -> None:
    """Fork a process for every game, until the other end of `control` is closed."""
    textworld = importlib.import_module("textworld")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    first = True
    while True:
        words, descriptors, _, _ = socket.recv_fds(control, _LONGEST, 1)
        if not words:
            return
        if first:  # parse shared data once here (0.3 s), so that the processes of all games inherit it
            first = False
            with contextlib.suppress(Exception):
                _opened(textworld, json.loads(words)["game"]).close()
        with socket.socket(fileno=descriptors[0]) as own:
            if os.fork() == 0:
                control.close()
                try:
                    _play(textworld, json.loads(words)["game"], own)
                finally:
                    os._exit(0)


def _play(textworld: Any, game: str, own: socket.socket) -> None:
    stream = own.makefile("rw", encoding="utf-8")
    _write(stream, {"pid": os.getpid()})
    signal.alarm(SECONDS)
    env = _opened(textworld, game)
    for line in stream:
        signal.alarm(SECONDS)
        command = json.loads(line)["do"]
        state = env.reset() if command is None else env.step(command)[0]
        answer = {
            "heard": state.description if command is None else state.feedback,
            "commands": sorted(state.admissible_commands or ()),
            "score": float(state.score or 0),
            "most": float(state.max_score or 0),
            "won": bool(state.won),
            "lost": bool(state.lost),
        }
        signal.alarm(0)
        _write(stream, answer)


def _opened(textworld: Any, game: str) -> Any:
    wanted = {"description", "admissible_commands", "won", "lost", "score", "max_score"}
    return textworld.start(game, textworld.EnvInfos(**dict.fromkeys(wanted, True)))


def _write(stream: Any, answer: dict[str, Any]) -> None:
    stream.write(json.dumps(answer) + "\n")
    stream.flush()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
