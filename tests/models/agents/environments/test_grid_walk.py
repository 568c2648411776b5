"""A grid: the cells that moves lead to, the distance from the goal, and the reward of a move."""

from dataclasses import replace
from itertools import product
from random import Random

import numpy as np
import pytest
from PIL import Image

from models.agents.environments.grid_walk import GridWalk
from models.agents.play.grid import MOVES, Grid, cell_name, read_move
from models.base.errors import UserError
from models.base.images import content_of, images_in, reference_to
from models.base.pictures import decoded
from models.method.problem import Problem
from tests.support.tiny_vision import png

ROWS = ("A.#.", "..#.", "...G")


def problem(*rows: str) -> Problem:
    return Problem("p", "\n".join(rows), f'{{"grid": {list(rows)!r}}}'.replace("'", '"'))


def walked(environment: GridWalk, moves: str) -> list[tuple[str, float, bool, bool, dict[str, object]]]:
    opened = environment.open(problem(*ROWS))
    opened.reset(0)
    return [opened.step(move) for move in moves]


def test_walls_and_edges_leave_one_where_one_is() -> None:
    assert [said for said, *_ in walked(GridWalk(), "luru")] == ["a1", "a1", "b1", "b1"]
    assert walked(GridWalk(), "rr")[-1][0] == "b1"  # the wall on c1


def test_the_distance_is_that_of_the_shortest_sequence_of_moves() -> None:
    grid = Grid(ROWS)
    for cell, distance in grid.distance.items():

        def reaches(moves: tuple[str, ...], at: tuple[int, int] = cell) -> bool:
            for move in moves:
                at = grid.after(at, move)
            return at == grid.goal

        assert any(map(reaches, product(MOVES, repeat=distance)))
        assert not distance or not any(map(reaches, product(MOVES, repeat=distance - 1)))


def test_only_the_last_word_is_the_move() -> None:
    assert [read_move(text) for text in ("r", "up", "the goal is right so\nDown.", "G is 3 right: r")] == [
        "r", "u", "d", "r",
    ]  # fmt: skip
    assert [read_move(text) for text in ("", "r then wait", "rr", "north")] == [None] * 4


def test_what_progress_earns_adds_up_to_the_way_whatever_the_detours() -> None:
    for moves in ("ddrrr", "rlddrrr", "ulddlrrlrr"):
        turns = walked(GridWalk(progress=0.5), moves)
        assert turns[-1][2] and turns[-1][4]["solved"]
        assert sum(reward for _, reward, *_ in turns) == pytest.approx(1.5)
    assert sum(reward for _, reward, *_ in walked(GridWalk(progress=0.5), "drud")) == pytest.approx(0.5 * 2 / 5)


def test_a_best_move_is_checked_by_rule_and_costs_are_paid() -> None:
    rewards = [reward for _, reward, *_ in walked(GridWalk(best_move=0.2, step_cost=0.1), "rludx")]
    assert rewards == pytest.approx([0.1, -0.1, -0.1, 0.1, -0.1])


def test_the_state_is_the_cell_and_notes_say_what_is_possible_and_what_has_worked() -> None:
    opened = GridWalk(shows="notes").open(problem(*ROWS))
    assert opened.reset(3) == ("", {"state": "a1", "solved": False})
    assert opened.step("d") == ("a2 udr <d", 0.0, False, False, {"state": "a2", "solved": False})
    assert opened.step("what?")[0] == "error: u, d, l or r"
    assert opened.step("l")[0] == "a2 udr <d"  # a move off the grid is not noted
    assert opened.step("r")[0] == "b2 udl <dr"


def test_thoughts_move_nothing_and_the_walk_is_that_of_the_moves_alone() -> None:
    plain = walked(GridWalk(progress=0.5), "ddrrr")
    opened = GridWalk(progress=0.5, thoughts=("think", "plan")).open(problem(*ROWS))
    assert opened.reset(0) == ("", {"state": "a1", "solved": False, "correction": "3r2d"})
    acted = []
    for move in "ddrrr":
        state = opened.step("down is good: d")
        assert state[:4] == ("plan", 0.0, False, False)
        assert opened.step("u")[:4] == ("act", 0.0, False, False)  # a move inside a thought has no effect
        acted.append(opened.step(move))
    assert [said.removesuffix(" think") for said, *_ in acted] == [said for said, *_ in plain]
    assert [turn[1:4] for turn in acted] == [turn[1:4] for turn in plain]
    assert [turn[4]["state"] for turn in acted] == [turn[4]["state"] for turn in plain]
    assert all(said.endswith(" think") for said, *_ in acted[:-1])


def test_chance_makes_walks_and_every_shortest_way_is_made_of_best_moves() -> None:
    random = Random(5)
    grid = Grid(("A.#..", "...#.", ".#...", "....G"))
    for _ in range(50):
        cell, steps = grid.start, 0
        while cell != grid.goal:
            cell, steps = grid.after(cell, random.choice(grid.best_moves(cell))), steps + 1
        assert steps == grid.distance[grid.start]
    assert cell_name((2, 1)) == "b3"


@pytest.mark.parametrize(
    "rows, why",
    [(("A#G",), "no way leads"), (("A..", "G."), "not of one length"), (("A.A", "..G"), "one start A and one goal G")],
)
def test_a_grid_without_a_way_is_refused_by_a_line(rows: tuple[str, ...], why: str) -> None:
    with pytest.raises(UserError, match=why):
        GridWalk().open(problem(*rows))


def test_a_picture_shows_the_walker_in_its_new_cell_and_leaves_the_rest_unchanged() -> None:
    start = np.full((24, 32, 3), 200, np.uint8)
    start[0:8, 0:8] = 255
    start[2:6, 2:6] = 0
    reference = reference_to(png(Image.fromarray(start)))
    drawn = replace(problem(*ROWS), prompt=f"{reference} walk to the goal")
    opened = GridWalk(shows="picture").open(drawn)
    assert opened.reset(0)[0] == ""
    texts = [opened.step(move)[0] for move in ("north", "r", "d", "u", "l")]
    assert texts[0] == texts[-1] == reference and texts[1] == texts[3]
    (name,) = images_in(texts[2])
    seen, expected = np.asarray(decoded(content_of(name), name)), start.copy()
    expected[0:8, 0:8] = 255
    expected[10:14, 10:14] = 0
    assert (seen == expected).all()
    with pytest.raises(UserError, match="problem p: grid_walk with shows: picture needs a picture in the prompt"):
        GridWalk(shows="picture").open(problem(*ROWS))


def test_thoughts_are_corrected_and_moves_are_not() -> None:
    opened = GridWalk(thoughts=("think",)).open(problem(*ROWS))
    infos = [opened.reset(0)[1], *(opened.step(turn)[4] for turn in ("3r", "r", "2r2d", "d"))]
    assert [info.get("correction") for info in infos] == ["3r2d", None, "2r2d", None, "2r1d"]
    plain = GridWalk().open(problem(*ROWS))
    assert "correction" not in plain.reset(0)[1] | plain.step("r")[4]
