"""Tests of games of TextArena as an environment. The package is optional (textarena.lock)."""

import importlib.util
import random
import re

import pytest

from models.agents.environments.textarena import TextArena
from models.base.errors import UserError
from models.method.problem import Problem

INSTALLED = importlib.util.find_spec("textarena") is not None
EXTRA = pytest.mark.skipif(not INSTALLED, reason="textarena is not installed: pip install --no-deps -r textarena.lock")
PROBLEM = Problem("p", "Play.")
HANOI = [f"[{way[0]} {way[1]}]" for way in ("AC", "AB", "CB", "AC", "BA", "BC", "AC")]


@pytest.mark.skipif(INSTALLED, reason="textarena is installed")
def test_where_the_package_is_missing_a_line_says_how_to_install_it() -> None:
    with pytest.raises(UserError, match=r"not installed: pip install --no-deps -r textarena\.lock"):
        TextArena().open(PROBLEM)


def guessed(seed: int) -> tuple[list[str], float, bool]:
    """Play by bisection. Return all observations, the reward of the game, and whether it is solved."""
    opened = TextArena().open(PROBLEM)
    said = [opened.reset(seed)[0]]
    low, high = (int(bound) for bound in re.findall(r"between (\d+) and (\d+)", said[0])[0])
    while True:
        middle = (low + high) // 2
        heard, worth, over, _, info = opened.step(f"I say [{middle}]")
        said.append(heard)
        if over:
            return said, worth, info["solved"]
        low, high = (middle + 1, high) if "higher" in heard else (low, middle - 1)


@EXTRA
def test_who_halves_the_range_guesses_the_number_and_hears_nothing_of_their_own() -> None:
    games = [guessed(seed) for seed in range(8)]
    assert {worth for _, worth, _ in games} == {1.0} and all(solved for _, _, solved in games)
    assert not any("I say" in heard for said, _, _ in games for heard in said)
    assert len({len(said) for said, _, _ in games}) > 1, "seeds have numbers of their own"


@EXTRA
def test_the_towers_of_hanoi_are_solved_by_the_seven_moves() -> None:
    opened = TextArena(game="TowerOfHanoi-v0").open(PROBLEM)
    opened.reset(0)
    for move in HANOI[:-1]:
        _, _, over, _, info = opened.step(move)
        assert not over and not info["solved"]
    _, worth, over, _, info = opened.step(HANOI[-1])
    assert (worth, over, info["solved"]) == (1.0, True, True)


@EXTRA
def test_games_beside_one_another_go_by_their_seeds_and_leave_chance_as_it_was() -> None:
    random.seed(5)
    wanted = random.random()
    alone = [TextArena(game="FrozenLake-v0-random").open(PROBLEM).reset(seed)[0] for seed in (1, 2, 1)]
    assert alone[0] == alone[2] != alone[1]
    random.seed(5)
    first, second = (TextArena(game="FrozenLake-v0-random").open(PROBLEM) for _ in range(2))
    assert [first.reset(1)[0], second.reset(2)[0]] == alone[:2]
    first.step("[right]"), second.step("[down]")
    assert random.random() == wanted


@EXTRA
def test_a_move_that_is_none_twice_ends_the_game_unsolved() -> None:
    opened = TextArena().open(PROBLEM)
    opened.reset(0)
    assert not opened.step("no number")[2]
    _, worth, over, _, info = opened.step("none again")
    assert over and worth < 1.0 and not info["solved"]
