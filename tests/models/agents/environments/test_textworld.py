"""Tests of games of TextWorld as an environment. The package is optional (textworld.lock)."""

import contextlib
import hashlib
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from models.agents.environments.textworld import TextWorld
from models.agents.play.textworld_games import GameEnded, TextWorldGame, TextWorldSize, compile_to, make
from models.base.errors import UserError
from models.method.problem import Problem

ROOT = Path(__file__).resolve().parents[4]
INSTALLED = importlib.util.find_spec("textworld") is not None
EXTRA = pytest.mark.skipif(not INSTALLED, reason="textworld is not installed: pip install --no-deps -r textworld.lock")


@pytest.mark.skipif(INSTALLED, reason="textworld is installed")
def test_where_the_package_is_missing_a_line_says_how_to_install_it() -> None:
    with pytest.raises(UserError, match=r"not installed: pip install --no-deps -r textworld\.lock"):
        TextWorld().open(Problem("p", "", "game-00001"))


def test_the_lock_of_the_games_is_of_the_code_and_settings_beside_it() -> None:
    stage = yaml.safe_load((ROOT / "data/textworld/dvc.lock").read_text())["stages"]["games"]
    for dep in stage["deps"]:
        assert hashlib.md5((ROOT / dep["path"]).read_bytes(), usedforsecurity=False).hexdigest() == dep["md5"]
    params = yaml.safe_load((ROOT / "data/textworld/params.yaml").read_text())
    assert stage["params"]["data/textworld/params.yaml"] == params


PLAIN = TextWorldSize(rooms=3, objects=1, quest=2)


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games")
    compile_to(folder / "game-00007.z8", *make(7, PLAIN))
    return folder


@pytest.fixture
def opened(games: Path) -> Iterator[Any]:
    opened = TextWorld(games=str(games), lists=True).open(Problem("p", "", "game-00007"))
    yield opened
    opened.close()


@EXTRA
def test_the_walkthrough_reaches_the_goal_and_is_worth_the_whole_score(opened: Any) -> None:
    game, _ = make(7, PLAIN)
    room, info = opened.reset(0)
    assert room == "" and info["state"] and len(info["actions"]) > 2
    for number, command in enumerate(game.metadata["walkthrough"], 1):
        assert command in info["actions"]
        heard, reward, over, cut, info = opened.step(command)
        assert over == (number == PLAIN.quest) and not cut
        assert heard == f"{info['state']} [{'; '.join(info['actions'])}]"
    assert reward == 1.0 and info["solved"]


@EXTRA
def test_what_a_game_does_not_understand_changes_nothing_and_ends_nothing(games: Path) -> None:
    opened = TextWorld(games=str(games), longest=20, first_room=True).open(Problem("p", "", "game-00007"))
    room, before = opened.reset(0)
    heard, reward, over, _, after = opened.step("fly to the moon")
    assert room and heard and reward == 0.0 and not over and not after["solved"]
    assert after["actions"] == before["actions"] and len(room) <= 20
    opened.close()


@EXTRA
@pytest.mark.parametrize("turn", ["save", "quit", "\x00\x1b[31m", "%s%s%n", "go " * 400, "\u2028", "{}", "restore\nx"])
def test_no_turn_ends_a_game_or_is_told_to_its_interpreter(opened: Any, tmp_path: Path, turn: str) -> None:
    opened.reset(0)
    with contextlib.chdir(tmp_path):
        heard, _, over, _, info = opened.step(turn)
        assert heard and not over and "look" in info["actions"]
    assert not list(tmp_path.iterdir())


@EXTRA
def test_a_game_that_crashes_ends_alone_and_the_next_begins(games: Path) -> None:
    file = games / "game-00007.z8"
    crashed, goes_on = TextWorldGame(file, 80), TextWorldGame(file, 80)
    first = crashed.begin()
    assert goes_on.begin() == first
    os.kill(crashed.pid, signal.SIGSEGV)
    with pytest.raises(GameEnded):
        crashed.do("look")
    assert goes_on.do("look")[0]
    after = TextWorldGame(file, 80)
    assert after.begin() == first
    for game in (crashed, goes_on, after):
        game.close()


@EXTRA
def test_games_are_played_on_after_the_program_that_forks_them_has_ended(games: Path) -> None:
    file = games / "game-00007.z8"
    before = TextWorldGame(file, 80)
    first = before.begin()
    os.kill(psutil.Process(before.pid).ppid(), signal.SIGKILL)
    after = TextWorldGame(file, 80)
    assert after.begin() == first and before.do("look")[0]
    for game in (before, after):
        game.close()


@EXTRA
def test_the_process_of_a_game_is_gone_once_it_is_closed(games: Path) -> None:
    game = TextWorldGame(games / "game-00007.z8", 80)
    game.begin()
    process = psutil.Process(game.pid)
    game.close()
    process.wait(30)
    assert not process.is_running()


@EXTRA
def test_the_same_seed_compiles_to_the_same_bytes_on_whatever_day(games: Path, tmp_path: Path) -> None:
    compile_to(tmp_path / "again.z8", *make(7, PLAIN))
    for name in ("again.z8", "again.json"):
        assert str(Path(sys.prefix)).encode() not in (tmp_path / name).read_bytes(), "of no use to another checkout"
    story = (tmp_path / "again.z8").read_bytes()
    assert story == (games / "game-00007.z8").read_bytes() and story[0x12:0x18] == b"000000"


@EXTRA
@pytest.mark.parametrize("answer", ["game-99999", "../game-00007", ""])
def test_a_problem_that_names_no_game_is_refused_in_a_line(games: Path, answer: str) -> None:
    with pytest.raises(UserError, match=r"problem 'p' is about no game of .*dvc repro data/textworld/dvc\.yaml"):
        TextWorld(games=str(games)).open(Problem("p", "", answer))
