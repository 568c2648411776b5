"""Reward `rendered`: likeness of pictures by hand, the cost of length, and drawings that cannot be drawn."""

from io import BytesIO

import numpy as np
import pytest

from models.answers.vector_graphics import rendered
from models.base.errors import UserError
from models.base.images import reference_to
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.parts.rewards.rules.rendered import Rendered
from tests.support.tiny_resources import make_resources

ANSWER = '<rect x="0" y="0" width="7" height="15" fill="black" />'


def problem(answer: str = ANSWER) -> Problem:
    content = BytesIO()
    rendered(answer, (16, 16)).save(content, "PNG")
    return Problem("p", f"{reference_to(content.getvalue())} draw", answer)


def value(text: str, reward: Rendered | None = None, finished: bool = True, answer: str = ANSWER) -> float:
    rollout = Rollout(problem(answer), 0, (1,), None, text, finished)
    return float((reward or Rendered())(make_resources(), [rollout])[0])


def test_likeness_by_hand() -> None:
    assert value(ANSWER) == pytest.approx(1.0)
    left, right = ANSWER, ANSWER.replace('x="0"', 'x="8"')
    assert value(right) == -1.0  # the opposite picture: the mean square is 4
    quarter = '<rect x="0" y="0" width="7" height="7" fill="black" />'
    black = np.zeros((16, 16))
    black[:8, :8] = 1.0  # a quarter is black: mean 3/4 white, deviation sqrt(3)/4
    drawn = np.where(black == 1.0, -0.75, 0.25) / (np.sqrt(3) / 4)
    expected = np.where(np.arange(16)[None] < 8, -1.0, 1.0) * np.ones((16, 1))
    assert value(quarter) == pytest.approx(1.0 - float(((drawn - expected) ** 2).mean()))
    assert value(f"<think>{right}</think> {left}") == pytest.approx(1.0)


def test_a_picture_of_one_colour_is_worth_nothing_and_one_that_cannot_be_drawn_less() -> None:
    assert value('<rect x="-1" y="-1" width="40" height="40" fill="white" />') == pytest.approx(0.0)
    assert value("a square") == value("") == value(ANSWER, finished=False) == -1.0


@pytest.mark.parametrize("copies", [1, 2, 9])
def test_the_cost_of_length_begins_at_half_of_the_answer_and_is_bounded(copies: int) -> None:
    text = " ".join([ANSWER] * copies)
    excess = min(1.0, (len(text) - len(ANSWER) / 2) / len(ANSWER)) ** 2
    assert value(text, Rendered(length=0.1)) == pytest.approx(1.0 - 0.1 * excess)
    short = ANSWER[: len(ANSWER) // 2]
    assert value(short, Rendered(length=0.1)) == -1.0


def test_right_is_from_a_likeness_on_and_the_answer_itself_is_right() -> None:
    reward, near = Rendered(right_from=0.7), ANSWER.replace('width="7"', 'width="8"')
    attempts = [(ANSWER, True), (near, True), ("a square", True), (ANSWER, False)]
    made = [Attempt(problem(), text, finished) for text, finished in attempts]
    assert reward.right(made) == [True, True, False, False]
    assert Rendered(right_from=0.95).right(made) == [True, False, False, False]
    assert reward.right([Attempt(problem(), reward.stated(problem()), True)]) == [True]


def test_only_the_size_of_the_prompts_picture_counts() -> None:
    other = problem(ANSWER.replace('x="0"', 'x="8"'))
    rollout = Rollout(Problem("p", other.prompt, ANSWER), 0, (1,), None, ANSWER, True)
    assert float(Rendered()(make_resources(), [rollout])[0]) == pytest.approx(1.0)
    broken = Rollout(Problem("p9", other.prompt, "a square"), 0, (1,), None, ANSWER, True)
    with pytest.raises(UserError, match="problem p9: the answer cannot be drawn: nothing is drawn"):
        Rendered()(make_resources(), [broken])


def test_a_prompt_without_a_picture_is_refused() -> None:
    rollout = Rollout(Problem("p7", "draw", ANSWER), 0, (1,), None, ANSWER, True)
    with pytest.raises(UserError, match="problem p7: reward rendered needs a picture in the prompt"):
        Rendered()(make_resources(), [rollout])
