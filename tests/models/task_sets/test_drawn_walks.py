"""Task sets of drawn grids: pictures show what the hidden grid has, and demonstrations are as set."""

import json
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from models.agents.play.grid import Grid, cell_name, way_to_goal
from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.datasets.schema import SOUND, TURNS, Row
from models.task_sets.drawing import make_rows
from models.task_sets.drawn_forecasts import AWAY, CLOSER, DrawnForecastsSettings
from models.task_sets.drawn_thoughts import DrawnThoughtsSettings
from models.task_sets.drawn_views import DrawnViewsSettings
from models.task_sets.drawn_walks import CELLS, DETOUR, WALL, DrawnWalksSettings
from models.task_sets.masked_walks import MaskedWalksSettings
from models.task_sets.novel_walks import NovelWalksSettings
from models.task_sets.scenes import COLOURS, SHAPES

GIVEN: dict[str, Any] = {
    "problems": {"train": 200, "validation": 20, "gate": 20},
    "demonstrations": {"train": 600},
    "walls": 3,
    "shapes": 3,
    "way": (1, 5),
    "detour": 0.5,
}
EDGE = 32 // CELLS


def pixels(reference: str) -> np.ndarray:
    return np.asarray(decoded(content_of(reference), reference))


def cell_of(picture: np.ndarray, row: int, column: int) -> np.ndarray:
    return picture[EDGE * row : EDGE * (row + 1), EDGE * column : EDGE * (column + 1)]


def grid_of(row: Row) -> Grid:
    return Grid(json.loads(str(row["answer"]))["grid"])


def test_the_picture_shows_walls_walker_and_the_named_goal_of_the_grid() -> None:
    for row in make_rows(DrawnWalksSettings(**GIVEN))["problems"]["train"]:
        (name,) = images_in(str(row["prompt"]))
        picture, grid, word = pixels(name), grid_of(row), str(row["prompt"]).split()[-1]
        assert row["level"] == grid.distance[grid.start] <= 5
        for place in grid.distance:
            cell = cell_of(picture, *place)
            assert (tuple(cell[0, 0]) == WALL) == (grid[place] == "#")
            assert (tuple(cell[4, 4]) == (0, 0, 0)) == (place == grid.start)
        colours = {tuple(map(int, pixel)) for pixel in cell_of(picture, *grid.goal).reshape(-1, 3)} - {(255, 255, 255)}
        assert len(colours) == 1 and colours <= set(COLOURS.values())
        assert word not in COLOURS or colours == {COLOURS[word]}


def test_half_of_the_demonstrations_make_a_detour_and_the_others_show_every_shortest_way() -> None:
    rows = make_rows(DrawnWalksSettings(**{**GIVEN, "problems": {"train": 8}, "demonstrations": {"train": 1600}}))
    grids = {row["prompt"]: grid_of(row) for row in rows["problems"]["train"]}
    demonstrations = rows["demonstrations"]["train"]
    flaws = Counter(row["flaw"] for row in demonstrations)
    assert 700 < flaws[DETOUR] < 900 and flaws.total() == 1600
    ways = defaultdict(set)
    for row in demonstrations:
        moves = str(row["completion"]).split(TURNS)[::2]
        grid = grids[row["prompt"]]
        if row["flaw"] == SOUND:
            assert len(moves) == grid.distance[grid.start]
            ways[row["prompt"]].add("".join(moves))

    def count(grid: Grid, cell: tuple[int, int]) -> int:
        return 1 if cell == grid.goal else sum(count(grid, grid.after(cell, move)) for move in grid.best_moves(cell))

    assert {prompt: len(moves) for prompt, moves in ways.items()} == {
        prompt: count(grid, grid.start) for prompt, grid in grids.items()
    }
    assert max(map(len, ways.values())) > 1


def test_a_mask_is_black_in_the_cell_of_the_goal_alone() -> None:
    for row in make_rows(MaskedWalksSettings(**GIVEN))["problems"]["train"][:50]:
        _, mask = map(pixels, images_in(str(row["prompt"])))
        grid = grid_of(row)
        assert (cell_of(mask, *grid.goal) == 0).all() and (mask == 0).sum() == 3 * EDGE**2
        assert not {*COLOURS} & {*str(row["prompt"]).split()}


def test_names_of_goals_in_held_out_splits_are_new() -> None:
    known = frozenset({"red", "green", "square", "circle"})
    rows = make_rows(NovelWalksSettings(**GIVEN, known=known))
    for split, problems in rows["problems"].items():
        names = {str(row["prompt"]).split(" at ")[0].split()[-1] for row in problems}
        assert names == (known if split == "train" else {*COLOURS, *SHAPES} - known)
    for row in rows["problems"]["gate"]:
        _, mask = map(pixels, images_in(str(row["prompt"])))
        assert (cell_of(mask, *grid_of(row).goal) == 0).all()


def test_every_thought_is_the_way_to_the_goal() -> None:
    rows = make_rows(DrawnThoughtsSettings(**GIVEN))
    grids = {row["prompt"]: grid_of(row) for row in rows["problems"]["train"]}
    for row in rows["demonstrations"]["train"]:
        turns = str(row["completion"]).split(TURNS)
        grid = grids[row["prompt"]]
        cell = grid.start
        for thought, move in zip(turns[::4], turns[2::4], strict=True):
            assert thought == way_to_goal(grid, cell)
            cell = grid.after(cell, move)


def test_a_forecast_names_the_cell_and_rejects_moves_that_lead_away() -> None:
    rows = make_rows(DrawnForecastsSettings(**GIVEN))
    grids = {row["prompt"]: grid_of(row) for row in rows["problems"]["train"]}
    considered = Counter[int]()
    for row in rows["demonstrations"]["train"]:
        grid = grids[row["prompt"]]
        cell = grid.start
        for turn in str(row["completion"]).split(TURNS)[::2]:
            *forecasts, move = turn.split()
            triples = [forecasts[at : at + 3] for at in range(0, len(forecasts), 3)]
            considered[len(triples)] += 1
            assert triples[-1][0] == move and [verdict for _, _, verdict in triples[:-1]] == [AWAY] * (len(triples) - 1)
            assert len({other for other, _, _ in triples}) == len(triples)
            for other, place, verdict in triples:
                after = grid.after(cell, other)
                assert place == cell_name(after)
                closer = grid.distance[after] < grid.distance[cell]
                assert verdict == (CLOSER if closer else AWAY) or row["flaw"] == DETOUR
            cell = grid.after(cell, move)
    assert {*considered} == {1, 2, 3}


def test_views_are_those_of_all_possible_places() -> None:
    rows = make_rows(DrawnViewsSettings(**GIVEN))
    grids = {row["prompt"]: grid_of(row) for row in rows["problems"]["train"]}
    for row in rows["demonstrations"]["train"][:100]:
        turns, grid = str(row["completion"]).split(TURNS), grids[row["prompt"]]
        assert not turns[0]
        cell = grid.start
        for text, move in zip(turns[1::2], turns[2::2], strict=True):
            moves = text.split()[::2]
            assert moves == grid.open_moves(cell) and move in moves
            for other, name in zip(moves, images_in(text), strict=True):
                row_of, column = grid.after(cell, other)
                assert tuple(cell_of(pixels(name), row_of, column)[4, 4]) == (0, 0, 0)
            cell = grid.after(cell, move)


@pytest.mark.parametrize("wrong", [{"shapes": 5}, {"walls": 7}, {"pixels": 40}, {"way": (0, 3)}])
def test_settings_that_do_not_fit_the_picture_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DrawnWalksSettings(**{**GIVEN, **wrong})
