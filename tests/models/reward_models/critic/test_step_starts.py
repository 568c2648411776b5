"""Boundaries of the steps of a completion: a step ends with the token that contains a mark."""

import pytest

from models.method.steps import step_numbers, step_starts


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1 - 7 = -6 ; -6 + 8 = 2 ; #### 2 <end>", [0] * 6 + [1] * 6 + [2] * 3),
        ("4 <end>", [0, 0]),
        ("; ; 4", [0, 1, 2]),  # a mark alone is a step
        ("4 ;", [0, 0]),  # no step begins after the last token
    ],
)
def test_a_step_ends_with_the_token_that_holds_a_mark(text: str, steps: list[int]) -> None:
    assert step_numbers(step_starts(text.split(), ("\n", ";"))).tolist() == steps


def test_a_mark_inside_a_token_ends_the_step_with_that_token() -> None:
    pieces = ["So", " x", ".\n\n", "Then", " y", ";\n", "z"]
    assert step_numbers(step_starts(pieces, ("\n",))).tolist() == [0, 0, 0, 1, 1, 1, 2]


def test_without_marks_the_completion_is_one_step() -> None:
    assert step_numbers(step_starts(["a", "\n", ";"], ())).tolist() == [0, 0, 0]
