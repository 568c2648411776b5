"""Ends of the steps of a completion: every step has text, and the last token always ends one."""

import pytest

from models.method.steps import step_ends


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([], ()),
        ([""], (0,)),
        (["a", ";", "b", ";", "c", ""], (1, 3, 5)),
        (["a", ";", "b", ";", ""], (1, 4)),  # an end token alone is not a step
        (["a", "\n", "\n", "b"], (2, 3)),  # a blank line is not a step
        (["\n", "a", "\n", "b"], (0, 2, 3)),
        (["a"] * 3, (2,)),
    ],
)
def test_every_step_says_something_and_ends_at_its_last_token(pieces: list[str], ends: tuple[int, ...]) -> None:
    assert step_ends(pieces, ("\n", ";")) == ends


def test_the_last_token_always_ends_a_step() -> None:
    for count in range(1, 30):
        pieces = ["x", ";", " ", "\n", "y", ""] * 5
        assert step_ends(pieces[:count], ("\n", ";"))[-1] == count - 1
