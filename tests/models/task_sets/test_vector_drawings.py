"""The task set `vector_drawings`: the answer draws the picture, and demonstrations that are off draw another one."""

import numpy as np

from models.answers.vector_graphics import rendered
from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.task_sets.drawing import make_rows
from models.task_sets.vector_drawings import EDGE, OFF, VectorDrawingsSettings

SETTINGS = VectorDrawingsSettings(
    problems={"train": 200, "validation": 30, "gate": 30},
    demonstrations={"train": 400},
    pictures=1000,
    shapes=(1, 1, 1),
    flawed=0.5,
)


def test_an_answer_draws_its_picture_and_a_flawed_demonstration_rarely_does() -> None:
    rows = make_rows(SETTINGS)
    same = {False: 0, True: 0}
    for row in rows["demonstrations"]["train"]:
        (name,) = images_in(str(row["prompt"]))
        shown = np.asarray(decoded(content_of(name), name))
        assert (np.asarray(rendered(str(row["answer"]), (EDGE, EDGE))) == shown).all()
        drawn = np.asarray(rendered(str(row["completion"]), (EDGE, EDGE)))
        same[row["flaw"] == OFF] += bool((drawn == shown).all())
        words, expected = str(row["completion"]).split(" "), str(row["answer"]).split(" ")
        changed = sum(word != other for word, other in zip(words, expected, strict=True))
        assert changed <= 4 * (row["flaw"] == OFF)
    flawed = sum(row["flaw"] == OFF for row in rows["demonstrations"]["train"])
    assert 150 < flawed < 250 and same[False] == 400 - flawed and same[True] < 0.1 * flawed


def test_a_picture_is_in_one_split_and_all_levels_occur() -> None:
    problems = make_rows(SETTINGS)["problems"]
    names = [{images_in(str(row["prompt"]))[0] for row in problems[split]} for split in problems]
    assert all(not first & second for at, first in enumerate(names) for second in names[at + 1 :])
    assert {row["level"] for row in problems["train"]} == {1, 2, 3}
