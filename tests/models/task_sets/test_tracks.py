"""The task set `tracks`: a vehicle stays on its road, moves evenly, and is drawn where its track is."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.task_sets.drawing import draw_tasks, make_rows
from models.task_sets.tracks import DOTS, EDGE, ROAD, TracksSettings, drawn_map, road_of

SETTINGS = TracksSettings(
    problems={"train": 300, "validation": 40, "gate": 40}, demonstrations={"train": 300}, maps=600, bent=0.4
)


def test_a_road_is_connected_and_has_one_bend() -> None:
    random = Random(0)
    for _ in range(200):
        road, corner = road_of(random)
        moves = [(x - a, y - b) for (a, b), (x, y) in pairwise(road)]
        assert all(abs(x) + abs(y) == 1 for x, y in moves)
        assert len(set(moves[:corner])) == 1 == len(set(moves[corner:])) and moves[corner - 1] != moves[corner]
        assert all(0 <= place < EDGE for point in road for place in point)


def test_the_map_shows_the_track_and_the_answer_continues_it() -> None:
    bends = 0
    for number in range(200):
        reference, (x, y), passes = drawn_map(1, number, 0.4)
        pixels = np.asarray(decoded(content_of(images_in(reference)[0]), reference))
        places = []
        for colour in DOTS:
            rows, columns = np.nonzero((pixels == colour).all(-1))
            places.append((columns.mean(), rows.mean()))
        (first_x, first_y), (middle_x, middle_y), (last_x, last_y) = places
        step = abs(last_x - middle_x) + abs(last_y - middle_y)
        assert abs(abs(x - last_x) + abs(y - last_y) - step) <= 1 + 1e-9
        straight = (x - last_x) * (last_y - middle_y) == (y - last_y) * (last_x - middle_x)
        assert straight != passes or (first_x, first_y) != (2 * middle_x - last_x, 2 * middle_y - last_y)
        bends += passes
        assert tuple(pixels[y, x]) in {ROAD, *DOTS}
    assert 50 < bends < 110


def test_rows_are_points_and_a_map_is_in_one_split() -> None:
    rows = make_rows(SETTINGS)
    assert all(row["completion"] == row["answer"] for row in rows["demonstrations"]["train"])
    names = [
        {name for row in rows["problems"][split] for name in images_in(str(row["prompt"]))}
        for split in rows["problems"]
    ]
    assert all(not first & second for at, first in enumerate(names) for second in names[at + 1 :])
    assert {task.level for task in draw_tasks(SETTINGS, "gate")} == {1, 2}


@pytest.mark.parametrize("bent", [0.0, 1.0])
def test_the_share_of_bends_reaches_its_limits(bent: float) -> None:
    assert {drawn_map(2, number, bent)[2] for number in range(100)} == {bool(bent)}
