"""Solids from programs of boxes: their cells, views, shared volumes, and the reward."""

from itertools import product

import numpy as np
import pytest

from models.answers.solids import EDGE, UnreadableSolidError, overlap, solid, views
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.solid import Solid
from tests.support.tiny_resources import make_resources

ANSWER = "box 0 0 0 4 2 2"
PROBLEM = Problem("p", "model", ANSWER)


def value(text: str, reward: Solid | None = None, finished: bool = True) -> float:
    rollout = Rollout(PROBLEM, 0, (1,), None, text, finished)
    return float((reward or Solid())(make_resources(), [rollout])[0])


def test_cells_are_filled_and_emptied_in_the_order_of_the_text() -> None:
    cells = solid("box 1 2 3 2 1 4\ncut 1 2 4 1 1 1 ; box 7 7 7 1 1 1")
    filled = {(x, 2, z) for x, z in product((1, 2), range(3, 7))} - {(1, 2, 4)} | {(7, 7, 7)}
    assert {tuple(map(int, place)) for place in np.argwhere(cells)} == filled
    assert (solid("box 0 0 0 2 2 2 ; cut 0 0 0 1 1 1") != solid("cut 0 0 0 1 1 1 ; box 0 0 0 2 2 2")).sum() == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no cell"),
        ("cut 0 0 0 8 8 8", "no cell"),
        ("box 0 0 0 2 2", "six digits"),
        ("box 0 0 0 2 2 2 2", "six digits"),
        ("ball 0 0 0 2 2 2", "operation 1"),
        ("box 0 0 0 2 2 2 ; box 0 0 0 2 2 0", "operation 2: the size is zero"),
        ("box 7 0 0 2 1 1", "leaves the cube"),
        (" ; ".join(["box 0 0 0 1 1 1"] * 101), "at most 100"),
    ],
)
def test_programs_that_make_no_solid_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnreadableSolidError, match=reason):
        solid(text)


def test_views_are_the_distances_to_the_first_filled_cell() -> None:
    cells = solid("box 1 2 3 2 1 4 ; box 0 6 0 1 1 1")
    front, above, right = views(cells)
    for x, y, z in product(range(EDGE), repeat=3):
        before_front = [at for at in range(EDGE) if cells[x, at, z]]
        assert front[EDGE - 1 - z, x] == (min(before_front) / EDGE if before_front else 1.0)
        from_above = [EDGE - 1 - at for at in range(EDGE) if cells[x, y, at]]
        assert above[EDGE - 1 - y, x] == (min(from_above) / EDGE if from_above else 1.0)
        from_right = [EDGE - 1 - at for at in range(EDGE) if cells[at, y, z]]
        assert right[EDGE - 1 - z, y] == (min(from_right) / EDGE if from_right else 1.0)


def test_shared_volumes_by_hand() -> None:
    assert value(ANSWER) == 1.0
    assert value("box 0 0 0 2 2 2") == pytest.approx(0.5)  # half of it, nothing else
    assert value("box 2 0 0 4 2 2") == pytest.approx(8 / 24)
    assert value("box 0 0 4 4 2 2") == 0.0
    assert value("box 0 0 0 2 2 2 ; box 2 0 0 2 2 2") == 1.0  # another program of the same solid
    assert overlap(solid(ANSWER), solid("box 0 0 0 8 8 8")) == pytest.approx(16 / 512)


def test_the_bonus_is_for_programs_that_can_be_read_and_are_whole() -> None:
    bonus = Solid(executes=0.2)
    assert value("box 0 0 4 4 2 2", bonus) == pytest.approx(0.2) and value(ANSWER, bonus) == pytest.approx(1.2)
    assert value("box 0 0", bonus) == value(ANSWER, bonus, finished=False) == 0.0
    assert value(f"<think>box 0 0 4 4 2 2</think> {ANSWER}", bonus) == pytest.approx(1.2)


def test_right_is_from_a_shared_volume_on_and_the_answer_itself_is_right() -> None:
    attempts = [Attempt(PROBLEM, text, True) for text in (ANSWER, "box 0 0 0 2 2 2", "ball")]
    assert Solid().right(attempts) == [True, False, False] and Solid(right_from=0.5).right(attempts)[1]
    assert Solid().right([Attempt(PROBLEM, Solid().stated(PROBLEM), True), Attempt(PROBLEM, ANSWER, False)]) == [
        True, False,
    ]  # fmt: skip
    with pytest.raises(UserError, match="problem q: the answer is not a solid: operation 1"):
        Solid().right([Attempt(Problem("q", "model", "ball"), ANSWER, True)])
