"""The environment `screen`: presses, the cursor, rewards of moves, and what the pictures show."""

import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from models.agents.environments.screen import ScreenEnvironment
from models.agents.play.screen import INK, Screen, read_point
from models.base.errors import UserError
from models.base.images import content_of, images_in, reference_to
from models.base.pictures import decoded
from models.method.problem import Problem
from tests.support.tiny_vision import png

SCREEN = reference_to(png(Image.new("RGB", (32, 32), (200, 220, 240))))
BOXES = [(20, 4, 28, 12), (4, 20, 10, 26)]


def problem(**other: Any) -> Problem:
    return Problem("p", f"{SCREEN} press red then blue", json.dumps({"targets": BOXES, **other}))


def played(environment: ScreenEnvironment, *turns: str, **other: Any) -> list[Any]:
    opened = environment.open(problem(**other))
    assert opened.reset(0)[0] == ""
    return [opened.step(turn) for turn in turns]


def pixels(text: str) -> np.ndarray:
    (name,) = images_in(text)
    return np.asarray(decoded(content_of(name), name))


def test_widgets_are_pressed_in_order_and_a_press_is_drawn() -> None:
    first, second = played(ScreenEnvironment(misses=1), "24 8", "10 20")
    assert first[1:] == (0.0, False, False, {"state": "pressed 0", "solved": False})
    assert tuple(pixels(first[0])[8, 24]) == (255, 255, 255) and tuple(pixels(first[0])[6, 22]) == INK
    assert (pixels(first[0])[20:27, 4:11] == (200, 220, 240)).all()
    assert second == ("", 1.0, True, False, {"state": "pressed 01", "solved": True})
    early, late = played(ScreenEnvironment(misses=1), "4 26", "24 8")
    assert early[0] == SCREEN and not early[4]["solved"] and late[4]["state"] == "pressed 0"


def test_without_an_order_every_order_solves_it() -> None:
    for turns in (("24 8", "10 20"), ("10 20", "24 8")):
        assert played(ScreenEnvironment(), *turns, in_order=False)[-1][4]["solved"]


def test_one_miss_too_many_ends_the_episode_unsolved() -> None:
    assert [turn[2] for turn in played(ScreenEnvironment(misses=2), "0 0", "19 4", "28 13")] == [False, False, True]
    (turn,) = played(ScreenEnvironment(), "31 31")
    assert turn[:4] == ("", 0.0, True, False) and not turn[4]["solved"]
    unreadable = played(ScreenEnvironment(), "red", "24", "24 -8", "2٤ 8")
    assert all(turn[0] == SCREEN and not turn[2] for turn in unreadable)


def test_a_cursor_is_drawn_where_it_was_moved_and_presses_there() -> None:
    moved, pressed, last, solved = played(ScreenEnvironment(pointer="cursor"), "24 8", "press", "10 26", "press")
    ink = {(int(x), int(y)) for y, x in np.argwhere((pixels(moved[0]) == INK).all(-1))}
    assert ink == {(22, 8), (23, 8), (24, 8), (25, 8), (26, 8), (24, 6), (24, 7), (24, 9), (24, 10)}
    assert moved[4] == {"state": "pressed  at 24 8", "solved": False} and pressed[4]["state"] == "pressed 0 at 24 8"
    assert not last[2] and solved[1:3] == (1.0, True)
    assert played(ScreenEnvironment(pointer="cursor"), "press")[0][2]  # the middle of the screen is no widget


@pytest.mark.parametrize("path", [["24 8"], ["0 31", "19 8", "24 8"], ["5 5", "28 12"]])
def test_gains_of_moves_to_a_widget_add_up_to_the_whole_way_whatever_the_detours(path: list[str]) -> None:
    turns = played(ScreenEnvironment(pointer="cursor", gain=0.5, step_cost=0.1), *path, "press")
    assert sum(turn[1] for turn in turns) == pytest.approx(0.5 - 0.1 * (len(path) + 1))
    screen = Screen(content_of(images_in(SCREEN)[0]), BOXES, in_order=True)
    away = played(ScreenEnvironment(pointer="cursor", gain=0.5), "0 31")[0][1]
    assert away == pytest.approx(0.5 * (1 - screen.distance((0, 31)) / screen.distance((16, 16))))


def test_places_are_the_last_two_words() -> None:
    assert [read_point(turn) for turn in ("12 9", "to 12 9", "9", "12 nine", "12 123456")] == [
        (12, 9), (12, 9), None, None, None,
    ]  # fmt: skip


def test_a_problem_without_a_picture_is_refused() -> None:
    with pytest.raises(UserError, match="problem p: the environment screen needs a picture in the prompt"):
        ScreenEnvironment().open(Problem("p", "press red", json.dumps({"targets": BOXES})))
