"""Tests of the measures of two claims, on people who disagree and on hard problems, by values computed by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks.claims.easy_to_hard_trials import _right, outcome
from benchmarks.claims.minority_trials import LIKED, _win_rate
from models.method.problem import Problem
from models.reward_models.solutions import Solution


def test_a_win_is_a_text_that_is_liked_more_and_a_tie_is_half_of_one() -> None:
    pairs = [
        ("lovely beach , lovely food", "lovely beach"),  # lovelier, and longer
        ("lovely beach", "dull hotel"),  # lovelier, equally long
        ("dull beach , dull hotel", "dull food"),  # equally lovely, and longer
    ]
    assert _win_rate(pairs, LIKED["majority"]) == pytest.approx((1 + 1 + 0.5) / 3)
    assert _win_rate(pairs, LIKED["minority"]) == pytest.approx((0 + 0.5 + 0) / 3)
    assert _win_rate([(text, text) for text, _ in pairs], LIKED["minority"]) == 0.5


def solution(number: int, right: bool) -> Solution:
    return Solution(Problem(f"p{number}", ""), (1, 2, 3), (0, 1, 2), "", True, right, (1.0, 0.5, float(right)))


def test_of_an_outcome_only_the_last_step_is_known() -> None:
    for right in (True, False):
        labels = outcome(solution(0, right)).labels
        assert [math.isnan(label) for label in labels] == [True, True, False] and labels[-1] == float(right)


def test_the_sample_of_highest_score_is_chosen_problem_by_problem() -> None:
    samples = [solution(0, True), solution(1, True), solution(0, False), solution(1, False)]
    problems = [Problem("p0", ""), Problem("p1", "")]
    assert _right([0.9, 0.1, 0.2, 0.8], samples, problems) == 0.5
    assert _right([0.9, 0.8, 0.2, 0.1], samples, problems) == 1.0
    assert _right([0.5, 0.5, 0.5, 0.5], samples, problems) == 0.5  # equal scores: the mean over all of them
