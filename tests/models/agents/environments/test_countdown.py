"""Countdown: expressions have exact values, each number is used once, and no answer reveals the target."""

from fractions import Fraction

import pytest

from models.agents.environments.countdown import Countdown
from models.agents.play.arithmetic_target import value_of
from models.method.problem import Problem

PROBLEM = Problem("p", "3 5 8 -> 64", '{"numbers": [3, 5, 8], "target": 64}')


@pytest.mark.parametrize(
    "text, value",
    [("(3+5)*8", 64), ("3+5*8", 43), ("8/3*5", Fraction(40, 3)), ("3-5-8 = 64", -10), (" 8 * (5-3) ", 16)],
)
def test_an_expression_is_worth_its_exact_value_whatever_stands_behind_the_equals_sign(
    text: str, value: object
) -> None:
    assert value_of(text, [3, 5, 8]) == value


@pytest.mark.parametrize(
    "text, why",
    [
        ("8*8", "use each number once"),
        ("3+5+8+8", "use each number once"),
        ("64", "use each number once"),
        ("3*5**8", "not an expression"),
        ("35+8", "use each number once"),
        ("-3+5+8", "not an expression"),
        ("3.0+5+8", "not an expression"),
        ("True+3+5+8", "not an expression"),
        ("abs(3)+5+8", "not an expression"),
        ("3+5+8+__import__('os').getpid()", "not an expression"),
        ("8/(3-3)+5", "division by zero"),
        ("", "not an expression"),
        ("(" * 60 + "3", "not an expression"),
        ("3+5+8" + " " * 90 + "+0", "too long"),
    ],
)
def test_what_breaks_the_rules_is_refused_and_never_run(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        value_of(text, [3, 5, 8])


def test_a_number_that_is_given_twice_is_used_twice() -> None:
    assert value_of("4+4", [4, 4]) == 8
    with pytest.raises(ValueError):
        value_of("4+4", [4])


def test_a_miss_hears_its_value_and_the_tries_are_bounded() -> None:
    opened = Countdown(tries=2).open(PROBLEM)
    assert opened.reset(0) == ("", {"state": ""})
    assert opened.step("3*5+8") == ("23", 0.0, False, False, {"state": "23", "solved": False})
    assert opened.step("64") == (
        "error: use each number once", 0.0, True, False, {"state": "23; error: use each number once", "solved": False},
    )  # fmt: skip
    opened = Countdown(tries=2).open(PROBLEM)
    opened.step("3*5+8")
    assert opened.step("I think\n(3+5)*8") == ("", 1.0, True, False, {"solved": True})


def test_no_answer_to_a_miss_holds_the_target() -> None:
    for miss in ("3*5+8", "64", "8*5-3", "3+5", "x"):
        said, *_ = Countdown().open(PROBLEM).step(miss)
        assert "64" not in said
