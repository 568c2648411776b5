"""The reward `boxes`: its value by hand, duplicates and missing boxes, and the demonstrations of its data set."""

from random import Random

import pytest
import torch

from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.boxes import Boxes
from models.task_sets.drawing import make_rows
from models.task_sets.shape_boxes import ShapeBoxesSettings
from tests.support.tiny_resources import make_resources

TWO = "0 0 4 4 ; 10 10 14 14"


def values(reward: Boxes, answer: str, *texts: str, finished: bool = True) -> list[float]:
    problem = Problem("p", "", answer)
    rollouts = [Rollout(problem, 0, (5,), torch.zeros(1), text, finished) for text in texts]
    return reward(make_resources(), rollouts).tolist()


def right(reward: Boxes, answer: str, text: str) -> bool:
    return reward.right([Attempt(Problem("p", "", answer), text, True)])[0]


def test_one_box_is_worth_its_intersection_over_union() -> None:
    # 4 x 4 against the same moved by one: 12 common of 20; by two: 8 of 24
    texts = ("0 0 4 4", "1 0 5 4", "2 0 6 4", "4 0 8 4", "4 4 0 0", "words", "0 0 4")
    assert values(Boxes(), "0 0 4 4", *texts) == pytest.approx([1, 12 / 20, 8 / 24, 0, 0, 0, 0])
    assert values(Boxes(), "0 0 4 4", "0 0 4 4", finished=False) == [0.0]


def test_duplicates_and_missing_boxes_cost() -> None:
    texts = (TWO, "10 10 14 14 ; 0 0 4 4", "0 0 4 4", f"{TWO} ; 0 0 4 4", "0 0 4 4 ; 0 0 4 4")
    # missing: P 1, R 1/2; duplicate of three: P 2/3, R 1; twice the same: P 1/2, R 1/2
    assert values(Boxes(), TWO, *texts) == pytest.approx([1, 1, 2 / 3, 4 / 5, 1 / 2])
    # beta 2: (1 + 4) P R / (4 P + R)
    assert values(Boxes(beta=2.0), TWO, *texts) == pytest.approx([1, 1, 5 / 9, 10 / 11, 1 / 2])


def test_small_overlaps_count_as_none_below_the_least() -> None:
    assert values(Boxes(least=0.5), "0 0 4 4", "1 0 5 4", "2 0 6 4") == pytest.approx([0.6, 0.0])


def test_right_is_every_box_from_a_share_on_and_no_other() -> None:
    assert right(Boxes(), "0 0 4 4", "1 0 5 4") and not right(Boxes(right_from=0.7), "0 0 4 4", "1 0 5 4")
    assert right(Boxes(), TWO, "10 10 14 14 ; 0 0 4 4")
    assert not right(Boxes(), TWO, "0 0 4 4") and not right(Boxes(), TWO, f"{TWO} ; 0 0 4 4")
    assert right(Boxes(reads="answer"), "0 0 4 4", "it is here #### 0 0 4 4")


def test_the_demonstrations_are_right_and_a_picture_is_in_one_split() -> None:
    settings = ShapeBoxesSettings(
        problems={"train": 120, "validation": 30, "gate": 30}, demonstrations={"train": 120}, pictures=400, several=0.4
    )
    made = make_rows(settings)
    for row in made["demonstrations"]["train"]:
        (value,) = values(Boxes(), str(row["answer"]), str(row["completion"]))
        assert value == pytest.approx(1.0)
    pictures = {split: {str(row["prompt"]).split()[0] for row in rows} for split, rows in made["problems"].items()}
    assert not pictures["train"] & pictures["gate"] and not pictures["train"] & pictures["validation"]
    levels = [int(row["level"]) for row in made["problems"]["train"]]
    assert min(levels) == 1 and max(levels) > 2 and 0.2 < sum(level > 1 for level in levels) / len(levels) < 0.6


def test_a_box_contains_the_pixels_of_its_shape_and_no_more() -> None:
    import numpy as np

    from models.task_sets.scenes import COLOURS, painted, scene, squares_of
    from models.task_sets.shape_boxes import boxes_of

    random = Random(3)
    for _ in range(30):
        shapes = scene(random)
        squares = squares_of(shapes, random)
        pixels = np.asarray(painted(shapes, squares))
        for colour, boxes in boxes_of(shapes, squares).items():
            if colour not in COLOURS:
                continue
            coloured = (pixels == COLOURS[colour]).all(-1)
            inside = np.zeros_like(coloured)
            for left, top, right_edge, bottom in boxes:
                inside[top : bottom + 1, left : right_edge + 1] = True
                assert coloured[bottom, left : right_edge + 1].any() and coloured[top : bottom + 1, left].any()
            assert not (coloured & ~inside).any()
