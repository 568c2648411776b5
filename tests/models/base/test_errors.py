"""UserError: the message is one line of bounded length that contains a part of every finding."""

import copy

import pytest

from models.base.errors import LONGEST_LINE, UserError


def test_of_twelve_findings_every_one_is_named_however_long_the_others_are() -> None:
    findings = [f"file {number}: {'x' * 2 * LONGEST_LINE} end {number}" for number in range(12)]
    message = str(UserError(*findings))
    for number in range(12):
        assert f"file {number}: " in message and f"end {number}" in message
    assert len(message) == 12 * LONGEST_LINE + 11 * len("; and ")


@pytest.mark.parametrize("number", [0, 1, 3])
def test_an_error_that_is_taken_apart_and_put_together_says_the_same(number: int) -> None:
    """Pickle and code that raises `type(error)(*error.args)` build the error again from its arguments."""
    error = UserError(*["long " * LONGEST_LINE] * number)
    assert str(copy.copy(error)) == str(UserError(*error.args)) == str(error)


def test_what_is_quoted_cannot_break_the_line() -> None:
    assert str(UserError("a\nb\x1b[2Jc", "d\re")) == "a b [2Jc; and d e"
