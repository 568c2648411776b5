"""Krippendorff's alpha: a published example, values by hand, and the cases in which it is 1, 0 or undefined."""

import math
import random

import pytest

from models.evaluation.agreement import agreement

CODERS = (
    "*****34121133*3",
    "1*213343*******",
    "**21344*21133*4",
)
"""Answers of three reviewers to fifteen questions, * if there is none. In this standard example for the coefficient,
alpha for nominal labels is 0.691."""


def test_the_published_example() -> None:
    questions = [[label for label in column if label != "*"] for column in zip(*CODERS, strict=True)]
    assert agreement(questions).alpha == pytest.approx(0.691, abs=5e-4)


def test_two_reviewers_by_hand() -> None:
    """The questions are aa ab bb bb. Three of the four pairs agree. Of the eight labels three are a and five are b, so
    a random pair disagrees with probability 2*3*5 / (8*7), and alpha is 1 - (1/4) / (30/56) = 8/15."""
    seen = agreement([["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"]])
    assert (seen.questions, seen.share) == (4, 0.75)
    assert seen.alpha == pytest.approx(8 / 15)


def test_who_said_it_and_in_which_order_does_not_count_and_a_single_answer_says_nothing() -> None:
    chance = random.Random(0)
    given = [[chance.choice("abcd") for _ in range(chance.randint(1, 4))] for _ in range(40)]
    turned = [chance.sample(labels, len(labels)) for labels in chance.sample(given, len(given))]
    first, second = agreement(given), agreement(turned)
    assert second.alpha == pytest.approx(first.alpha) and second.share == pytest.approx(first.share)
    assert agreement([labels for labels in given if len(labels) > 1]) == first


def test_the_ends() -> None:
    assert agreement([["a", "a"], ["b", "b", "b"]]).alpha == 1.0
    assert agreement([["a", "b"], ["b", "a"]]).alpha < 0
    alike = agreement([["a", "a"], ["a", "a"]])
    assert alike.share == 1.0 and math.isnan(alike.alpha)
    alone = agreement([["a"], ["b"]])
    assert alone.questions == 0 and math.isnan(alone.share) and math.isnan(alone.alpha)


def test_answers_by_chance_have_an_alpha_about_zero() -> None:
    chance = random.Random(1)
    assert abs(agreement([[chance.choice("ab"), chance.choice("ab")] for _ in range(20_000)]).alpha) < 0.03
