"""The task set `scenes`: every question has one right answer, answers are balanced, a picture is in one split."""

from collections import Counter
from itertools import product
from random import Random

import numpy as np
import pytest

from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.task_sets.drawing import draw_tasks, make_rows
from models.task_sets.scenes import (
    ANSWERS,
    COLOURS,
    KINDS,
    PLACES,
    SHAPES,
    ScenesSettings,
    Shape,
    painted,
    picture,
    questions,
    scene,
    squares_of,
)

SETTINGS = ScenesSettings(
    problems={"train": 600, "validation": 150, "gate": 150},
    demonstrations={"train": 600},
    pictures=400,
    shares={"colour": 1, "shape": 1.25, "count": 1, "position": 1, "relation": 1.5},
)
CORNERS = {"topleft": (0, 0), "topright": (1, 0), "bottomleft": (0, 1), "bottomright": (1, 1)}


def direction(mine: str, other: str) -> set[str]:
    """Return where a corner is as seen from another, by coordinates; empty across the diagonal."""
    (x, y), (other_x, other_y) = CORNERS[mine], CORNERS[other]
    if y == other_y and x != other_x:
        return {"left" if x < other_x else "right"}
    return {"above" if y < other_y else "below"} if x == other_x and y != other_y else set()


def answers_by_definition(question: str, shapes: tuple[Shape, ...]) -> set[str]:
    """Return every answer that some shape of a picture gives, from the words of the question alone."""
    words = question.split()
    objects = [(colour, form, PLACES[quarter]) for colour, form, quarter in shapes]
    last = [each for each in objects if words[-1] in each]
    if words[0] == "how":
        return {str(len(objects) if words[-1] == "shapes" else len(last))}
    if words[0] == "from":
        first = [each for each in objects if words[2] in each]
        return set().union(*(direction(mine[2], other[2]) for mine, other in product(last, first)))
    place = {"what colour": 0, "what shape": 1}.get(" ".join(words[:2]), 2)
    return {each[place] for each in last}


def test_every_question_about_200_scenes_has_exactly_its_answer() -> None:
    random, asked = Random(3), 0
    for _ in range(200):
        shapes = scene(random)
        assert len({quarter for *_, quarter in shapes}) == len(shapes) == len({shape[:2] for shape in shapes})
        for kind, by_answer in questions(shapes).items():
            for answer, texts in by_answer.items():
                assert answer in ANSWERS[kind]
                for text in texts:
                    assert answers_by_definition(text, shapes) == {answer}, (text, shapes)
                    asked += 1
    assert asked > 4000


@pytest.mark.parametrize("pixels", [32, 96])
def test_shapes_are_painted_in_their_quarters_and_in_their_colours(pixels: int) -> None:
    half = pixels // 2
    for form, quarter in product(SHAPES, range(4)):
        colour = list(COLOURS)[quarter]
        shapes = ((colour, form, quarter),)
        values = np.asarray(painted(shapes, squares_of(shapes, Random(5)), pixels))
        coloured = (values != 255).any(-1)
        x, y = quarter % 2 * half, quarter // 2 * half
        inside = coloured[y : y + half, x : x + half]
        assert inside.sum() == coloured.sum() > 0.05 * half * half
        assert (values[coloured] == COLOURS[colour]).all()
        height, width = np.ptp(np.argwhere(inside), axis=0) + 1
        low, high = {"square": (1.0, 1.0), "circle": (0.65, 0.9), "triangle": (0.4, 0.7), "cross": (0.4, 0.75)}[form]
        assert low <= inside.sum() / (height * width) <= high, form


def test_the_same_settings_give_the_same_rows_and_a_picture_is_in_one_split() -> None:
    rows = make_rows(SETTINGS)
    picture.cache_clear()
    assert make_rows(SETTINGS) == rows
    seen = {
        split: {name for row in part for name in images_in(str(row["prompt"]))}
        for split, part in rows["problems"].items()
    }
    assert not seen["train"] & seen["gate"] and not seen["train"] & seen["validation"]
    assert not seen["gate"] & seen["validation"] and all(seen.values())
    assert {name for row in rows["demonstrations"]["train"] for name in images_in(str(row["prompt"]))} == seen["train"]
    for row in rows["demonstrations"]["train"]:
        assert row["completion"] == row["answer"] and row["flaw"] == "none"


def test_answers_are_balanced_within_each_kind_so_that_guessing_gains_little() -> None:
    tasks = draw_tasks(SETTINGS.model_copy(update={"problems": {"gate": 1000}, "pictures": 4000}), "gate")
    for level, kind in enumerate(KINDS, 1):
        asked = [(task.prompt.split("> ")[1], task.answer) for task in tasks if task.level == level]
        counts = Counter(answer for _, answer in asked)
        assert set(counts) == set(ANSWERS[kind])
        assert max(counts.values()) / len(asked) < 1.6 / len(ANSWERS[kind])


def test_the_pictures_of_the_rows_can_be_decoded() -> None:
    for task in draw_tasks(SETTINGS.model_copy(update={"problems": {"train": 20}}), "train"):
        (name,) = images_in(task.prompt)
        assert decoded(content_of(name), name).size == (32, 32)
