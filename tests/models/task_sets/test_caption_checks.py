"""The task set `caption_checks`: a critique names the faults of a description, and a wrong one differs from it."""

from random import Random

import pytest

from models.answers.listed import names_in
from models.task_sets.caption_checks import RIGHT, CaptionChecksSettings, critique_of, wrong_critique
from models.task_sets.drawing import Task, draw_tasks, make_rows

SETTINGS = CaptionChecksSettings(
    problems={"train": 300, "validation": 60, "gate": 60},
    demonstrations={"train": 600},
    preferences={"train": 300},
    pictures=600,
    sound=0.3,
    flawed=0.2,
)
TRUE = "red square topleft ; blue circle topright"


@pytest.mark.parametrize(
    ("shown", "critique"),
    [
        (TRUE, RIGHT),
        ("red square topleft", "missing blue circle topright"),
        ("red square topleft ; blue cross topright", "wrong blue cross topright ; missing blue circle topright"),
        (f"{TRUE} ; green cross bottomleft", "wrong green cross bottomleft"),
    ],
)
def test_critiques_by_hand(shown: str, critique: str) -> None:
    assert critique_of(shown, TRUE) == critique


def test_wrong_critiques_blame_praise_or_miss() -> None:
    random = Random(0)
    shown = "red square topleft ; blue cross topright"
    answer = critique_of(shown, TRUE)
    made = {wrong_critique(random, Task("", answer, 2, (shown, TRUE))) for _ in range(200)}
    assert made == {
        ("praised", RIGHT),
        ("missed", "wrong blue cross topright"),
        ("missed", "missing blue circle topright"),
        ("blamed", f"wrong red square topleft ; {answer}"),
    }
    sound = {wrong_critique(random, Task("", RIGHT, 1, (TRUE, TRUE))) for _ in range(50)}
    assert sound == {("blamed", f"wrong {item}") for item in TRUE.split(" ; ")}


def test_every_row_is_a_critique_of_its_description() -> None:
    tasks = draw_tasks(SETTINGS, "train")
    assert all(critique_of(*task.steps) == task.answer for task in tasks)
    assert 0.2 < sum(task.level == 1 for task in tasks) / len(tasks) < 0.4
    rows = make_rows(SETTINGS)
    assert all(
        (row["completion"] == row["answer"]) == (row["flaw"] == "none") for row in rows["demonstrations"]["train"]
    )
    for row in rows["preferences"]["train"]:
        assert set(names_in(str(row["chosen"]))) != set(names_in(str(row["rejected"])))
