"""Games of TextWorld as an environment; the package is an extra (textworld.lock)."""

import hashlib
import importlib.util
from pathlib import Path

import pytest
import yaml

from models.environment.textworld import TextWorld
from models.episodes.textworld_games import compile_to, make
from models.errors import UserError
from models.loop.rollout import Problem

ROOT = Path(__file__).resolve().parents[3]
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


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games")
    compile_to(folder / "game-00007.z8", *make(7, 1, 2, 1))
    return folder


@EXTRA
def test_the_walkthrough_reaches_the_goal_and_is_worth_the_whole_score(games: Path) -> None:
    game, _ = make(7, 1, 2, 1)
    opened = TextWorld(games=str(games)).open(Problem("p", "", "game-00007"))
    room, info = opened.reset(0)
    assert room == "" and info["state"] and len(info["actions"]) > 2
    for number, command in enumerate(game.metadata["walkthrough"], 1):
        assert command in info["actions"]
        heard, reward, over, cut, info = opened.step(command)
        assert over == (number == len(game.metadata["walkthrough"])) and not cut and len(heard) <= 160
    assert reward == 1.0 and info["solved"]
    opened.close()


@EXTRA
def test_what_a_game_does_not_understand_changes_nothing_and_ends_nothing(games: Path) -> None:
    opened = TextWorld(games=str(games), first_room=True).open(Problem("p", "", "game-00007"))
    room, before = opened.reset(0)
    heard, reward, over, _, after = opened.step("fly to the moon")
    assert room and heard and reward == 0.0 and not over and not after["solved"]
    assert after["actions"] == before["actions"]
    opened.close()


@EXTRA
def test_the_same_seed_compiles_to_the_same_bytes(games: Path, tmp_path: Path) -> None:
    compile_to(tmp_path / "again.z8", *make(7, 1, 2, 1))
    assert (tmp_path / "again.z8").read_bytes() == (games / "game-00007.z8").read_bytes()


@EXTRA
@pytest.mark.parametrize("answer", ["game-99999", "../game-00007", ""])
def test_a_problem_that_names_no_game_is_refused_in_a_line(games: Path, answer: str) -> None:
    with pytest.raises(UserError, match=r"problem 'p' is about no game of .*dvc repro data/textworld/dvc\.yaml"):
        TextWorld(games=str(games)).open(Problem("p", "", answer))
