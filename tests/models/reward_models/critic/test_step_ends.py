"""Where the steps of a completion end, each test named as the theorem it checks."""

import pytest

from models.method.steps import step_ends


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([], ()),
        ([""], (0,)),
        (["a", ";", "b", ";", "c", ""], (1, 3, 5)),
        (["a", ";", "b", ";", ""], (1, 4)),  # an end token alone is no step
        (["a", "\n", "\n", "b"], (2, 3)),  # nor is a blank line
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
