"""The task set `scene_steps`: a working describes the picture, and its answer follows from the description."""

import re

from models.task_sets.captions import FLAWS
from models.task_sets.drawing import Task, draw_tasks, make_rows
from models.task_sets.scene_steps import SceneStepsSettings, answer_from
from models.task_sets.scenes import PLACES, caption_of, items_of, picture

SETTINGS = SceneStepsSettings(
    problems={"train": 500, "validation": 60, "gate": 60},
    demonstrations={"train": 1000, "validation": 60},
    pictures=400,
    shares={"colour": 1, "shape": 1, "count": 1, "position": 1, "relation": 1},
    flawed=0.4,
)
FORM = re.compile(r"(\w+ \w+ \w+( ; \w+ \w+ \w+)*) #### (\w+)")


def test_a_sound_working_describes_the_picture_and_gives_its_answer() -> None:
    captions = {
        reference: caption_of(items_of(shapes)) for shapes, _, reference in (picture(1, n, 32) for n in range(400))
    }
    for row in make_rows(SETTINGS)["demonstrations"]["train"]:
        match = FORM.fullmatch(str(row["completion"]))
        assert match is not None
        assert (match[1] == captions[str(row["prompt"]).split()[0]]) == (row["flaw"] == "none")
        assert row["flaw"] in FLAWS or match[3] == row["answer"]


def test_the_answer_of_a_flawed_working_follows_from_it() -> None:
    rows = make_rows(SETTINGS)["demonstrations"]["train"]
    flawed = [row for row in rows if row["flaw"] != "none"]
    assert 0.2 < len(flawed) / len(rows) < 0.45
    for row in flawed:
        caption, _, answer = str(row["completion"]).partition(" #### ")
        assert answer_from(caption, Task(str(row["prompt"]), "", int(row["level"]), ())) == answer
    assert sum(str(row["completion"]).split()[-1] != row["answer"] for row in flawed) > len(flawed) / 8


def test_the_answer_from_the_true_description_is_that_of_the_task() -> None:
    for task in draw_tasks(SETTINGS, "train"):
        assert answer_from(task.steps[0], task) == task.answer


def test_a_description_that_does_not_answer_gives_none() -> None:
    assert answer_from("red square topleft", Task("<image> where is the circle", "", 4, ())) is None
    assert answer_from("red square topleft", Task("<image> where is the square", "", 4, ())) == PLACES[0]
