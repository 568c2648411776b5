"""The task set `captions`: a description names what is painted, and a flawed one differs from it by its flaw."""

from random import Random

import pytest

from models.answers.listed import names_in
from models.base.images import images_in
from models.task_sets.captions import FLAWS, CaptionsSettings, flawed_caption
from models.task_sets.drawing import draw_tasks, make_rows
from models.task_sets.scenes import PLACES, picture

SETTINGS = CaptionsSettings(
    problems={"train": 300, "validation": 60, "gate": 60},
    demonstrations={"train": 600, "validation": 60},
    preferences={"train": 300},
    pictures=400,
    every=0.5,
    flawed=0.3,
)


def test_a_description_names_the_shapes_that_its_prompt_is_about() -> None:
    pictures = {reference: shapes for shapes, _, reference in (picture(1, number, 32) for number in range(400))}
    for task in draw_tasks(SETTINGS, "train"):
        reference, _, word = task.prompt.split()
        seen = [f"{colour} {form} {PLACES[quarter]}" for colour, form, quarter in pictures[reference]]
        expected = seen if word == "shapes" else [item for item in seen if word in item.split()]
        assert sorted(task.answer.split(" ; ")) == sorted(expected)
        assert task.level == len(expected) > 0


def test_a_picture_is_in_one_split() -> None:
    rows = make_rows(SETTINGS)["problems"]
    names = [{name for row in rows[split] for name in images_in(str(row["prompt"]))} for split in rows]
    assert all(not first & second for at, first in enumerate(names) for second in names[at + 1 :])


@pytest.mark.parametrize(
    "caption",
    [
        "red square topleft",
        "red square topleft ; red circle bottomright",
        "red square topleft ; red circle topright ; blue cross bottomleft ; green square bottomright",
    ],
)
def test_a_flaw_changes_what_it_is_called_after(caption: str) -> None:
    random, true, seen = Random(0), names_in(caption), set()
    for _ in range(300):
        flaw, flawed = flawed_caption(random, caption)
        named = names_in(flawed)
        seen.add(flaw)
        looks, places = ([name.rsplit(" ", 1)[at] for name in named] for at in (0, 1))
        true_looks, true_places = ([name.rsplit(" ", 1)[at] for name in true] for at in (0, 1))
        assert set(named) != set(true)
        assert places == sorted(set(places), key=PLACES.index)
        if flaw == "existence":
            assert abs(len(named) - len(true)) == 1
        elif flaw == "attribute":
            assert places == true_places
            assert sum(mine != other for mine, other in zip(looks, true_looks, strict=True)) == 1
        else:
            assert sorted(looks) == sorted(true_looks)
    assert seen == set(FLAWS)


def test_demonstrations_have_the_share_of_flaws_and_preferences_always_one() -> None:
    rows = make_rows(SETTINGS)
    demonstrations, preferences = rows["demonstrations"]["train"], rows["preferences"]["train"]
    flawed = [row for row in demonstrations if row["flaw"] != "none"]
    assert 0.22 < len(flawed) / len(demonstrations) < 0.38
    assert all((row["completion"] == row["answer"]) == (row["flaw"] == "none") for row in demonstrations)
    assert all(row["chosen"] != row["rejected"] and row["flaw"] in FLAWS for row in preferences)
    assert make_rows(SETTINGS)["preferences"]["train"] == preferences
