"""The tool `zoom` and the task set `small_scenes`: parts of a picture, and questions that need one."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from PIL import Image

from models.agents.environments.tools import Tools
from models.agents.tools.zoom import QUARTERS, Zoom
from models.base.images import content_of, images_in, reference_to
from models.base.pictures import decoded
from models.datasets.schema import SOUND, TURNS
from models.method.problem import Problem
from models.method.tool import ToolError
from models.task_sets.drawing import make_rows
from models.task_sets.scenes import painted, questions, scene, squares_of
from models.task_sets.small_scenes import SmallScenesSettings, four_scenes
from tests.support.tiny_vision import png

NOISE = np.random.default_rng(3).integers(0, 256, (40, 64, 3), dtype=np.uint8)
PROMPT = f"{reference_to(png(Image.fromarray(NOISE)))} what is there"
ZOOM = Zoom().about(Problem("p", PROMPT, "1"))
SMALL = SmallScenesSettings(
    problems={"train": 200},
    demonstrations={"train": 400},
    pictures=300,
    shares={"colour": 1, "shape": 1, "count": 1, "position": 1, "relation": 1},
    guessed=0.5,
)


def seen(text: str) -> np.ndarray:
    (name,) = images_in(text)
    return np.asarray(decoded(content_of(name), name))


@pytest.mark.parametrize(
    ("argument", "rows", "columns"),
    [
        ("topleft", slice(0, 20), slice(0, 32)),
        (" bottomright ", slice(20, 40), slice(32, 64)),
        ("0 0 63 39", slice(0, 40), slice(0, 64)),
        ("10 5 13 30", slice(5, 31), slice(10, 14)),
    ],
)
def test_a_part_has_the_pixels_of_the_picture(argument: str, rows: slice, columns: slice) -> None:
    assert (seen(ZOOM.call(argument)) == NOISE[rows, columns]).all()
    assert ZOOM.call(argument) == ZOOM.call(argument)


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("left", "topleft, topright"),
        ("1 2 3", "topleft, topright"),
        ("-1 0 9 9", "topleft, topright"),
        ("0 0 64 39", "64 pixels wide and 40 high"),
        ("9 9 3 30", "at least 4 pixels"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(argument: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        ZOOM.call(argument)


def test_a_prompt_without_a_picture_has_no_parts() -> None:
    opened = Tools(tool=[Zoom()]).open(Problem("p", "what is there", "1"))
    opened.reset(0)
    assert opened.step("zoom: topleft")[0] == "error: the prompt has no picture"


def test_episodes_of_two_problems_look_at_their_own_pictures() -> None:
    environment, texts = Tools(tool=[Zoom()]), []
    for shade in (10, 20):
        picture = reference_to(png(Image.new("RGB", (8, 8), (shade,) * 3)))
        opened = environment.open(Problem("p", f"{picture} what", "1"))
        opened.reset(0)
        texts.append(opened.step("zoom: topright")[0])
    assert [int(seen(text).max()) for text in texts] == [10, 20]


def test_a_sound_demonstration_looks_at_the_quarter_that_has_the_answer() -> None:
    rows = make_rows(SMALL)
    answers = {row["prompt"]: str(row["answer"]) for row in rows["problems"]["train"]}
    flaws = Counter(row["flaw"] for row in rows["demonstrations"]["train"])
    assert 150 < flaws["guessed"] < 250 and flaws.total() == 400
    for row in rows["demonstrations"]["train"]:
        turns, prompt = str(row["completion"]).split(TURNS), str(row["prompt"])
        opened = Tools(tool=[Zoom()]).open(Problem("p", prompt, answers[prompt]))
        opened.reset(0)
        answered = [opened.step(turn) for turn in turns[::2]]
        assert [each[0] for each in answered[:-1]] == turns[1::2] and answered[-1][2]
        if row["flaw"] == SOUND:
            assert len(turns) == 3 and turns[-1] == f"#### {answers[prompt]}" and prompt.split()[1] in turns[0]


def test_each_quarter_is_the_scene_that_questions_are_about() -> None:
    scenes, reference = four_scenes(1, 5, 64)
    picture, random = seen(reference), Random("1/small/5")
    for shapes, (column, row) in zip(scenes, QUARTERS.values(), strict=True):
        assert scene(random) == shapes and questions(shapes)["count"]
        expected = np.asarray(painted(shapes, squares_of(shapes, random), 32))
        assert (picture[32 * row : 32 * (row + 1), 32 * column : 32 * (column + 1)] == expected).all()
