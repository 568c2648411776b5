"""The task sets `screens` and `cursor_screens`: what prompts name is unambiguous, and demonstrations are off as set."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from models.agents.play.screen import inside, read_point
from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.datasets.schema import TURNS
from models.task_sets.cursor_screens import CursorScreensSettings
from models.task_sets.drawing import make_rows
from models.task_sets.scenes import COLOURS
from models.task_sets.screens import ASTRAY, THEN, ScreensSettings, names_of

GIVEN: dict[str, Any] = {
    "problems": {"train": 300, "validation": 40, "gate": 40},
    "demonstrations": {"train": 600},
    "pictures": 800,
    "astray": 0.5,
    "error": 9,
}
SCREENS = ScreensSettings(presses=(1, 1, 1), **GIVEN)
CURSORS = CursorScreensSettings(presses=(1,), **GIVEN)


def test_places_that_cannot_leave_a_widget_are_refused() -> None:
    with pytest.raises(ValueError, match="error: 7 pixels may not leave a widget; it takes more than 7"):
        ScreensSettings(presses=(1,), **{**GIVEN, "error": 7})


def test_only_words_of_one_shape_name_it() -> None:
    shapes = (("red", "circle", 0), ("red", "square", 1), ("blue", "square", 2), ("red", "square", 3))
    assert names_of(shapes) == {0: ["circle"], 2: ["blue"]}


def test_the_named_colour_fills_the_middle_of_its_box() -> None:
    for row in make_rows(SCREENS)["problems"]["train"]:
        (name,) = images_in(str(row["prompt"]))
        pixels = np.asarray(decoded(content_of(name), name))
        words = str(row["prompt"]).split("press ")[1].split(THEN)
        boxes = json.loads(str(row["answer"]))["targets"]
        assert len(words) == len(boxes) == len({*words}) == row["level"]
        for word, (left, top, right, bottom) in zip(words, boxes, strict=True):
            middle = tuple(int(value) for value in pixels[(top + bottom) // 2, (left + right) // 2])
            assert middle in COLOURS.values() and (word not in COLOURS or middle == COLOURS[word])


@pytest.mark.parametrize("settings", [SCREENS, CURSORS], ids=["screens", "cursor_screens"])
def test_a_share_of_the_demonstrations_begins_next_to_the_widget(settings: ScreensSettings) -> None:
    rows = make_rows(settings)
    boxes = {row["prompt"]: json.loads(str(row["answer"]))["targets"] for row in rows["problems"]["train"]}
    flaws = Counter(row["flaw"] for row in rows["demonstrations"]["train"])
    assert 240 < flaws[ASTRAY] < 360 and flaws.total() == 600
    for row in rows["demonstrations"]["train"]:
        first = boxes[row["prompt"]][0]
        point = read_point(str(row["completion"]).split(TURNS)[0])
        assert point and inside(point, first) == (row["flaw"] != ASTRAY)
        assert all(abs(at - (first[axis] + first[axis + 2]) // 2) <= 9 for axis, at in enumerate(point))
