"""Comparison of methods over a few runs: interquartile mean, probability of improvement, and their intervals."""

import itertools

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.aggregate import (
    interquartile_mean,
    probability_of_improvement,
    standings,
    stratified_interval,
)


def test_the_middle_half_of_eight_scores_is_their_four_middle_ones() -> None:
    assert interquartile_mean([[90.0], [1.0], [3.0], [5.0], [7.0], [2.0], [-80.0], [4.0]]) == pytest.approx(3.5)


def test_of_five_scores_one_at_each_end_is_cut() -> None:
    assert interquartile_mean([0.1, 0.2, 0.3, 0.4, 5.0]) == pytest.approx(0.3)


def test_one_outlier_moves_the_mean_and_not_the_interquartile_mean() -> None:
    steady = np.linspace(0, 1, 8)
    wild = np.append(steady[:-1], 1000.0)
    assert interquartile_mean(wild) == pytest.approx(interquartile_mean(steady))


def test_tasks_are_pooled_before_the_ends_are_cut() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0]])
    assert interquartile_mean(scores) == pytest.approx(5.5)


def test_the_probability_of_improvement_counts_every_pair_of_runs_and_halves_ties() -> None:
    first, other = [1.0, 2.0, 3.0], [2.0, 0.0]
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(first, other)]
    assert probability_of_improvement(first, other) == pytest.approx(sum(pairs) / 6)


def test_both_ways_the_probabilities_of_improvement_add_up_to_one() -> None:
    chance = np.random.default_rng(0)
    first, other = chance.normal(size=(6, 3)), chance.normal(size=(4, 3))
    both = probability_of_improvement(first, other) + probability_of_improvement(other, first)
    assert both == pytest.approx(1.0)


def test_the_mean_over_tasks_is_taken_after_each_task_was_compared_with_itself() -> None:
    first, other = np.array([[1.0, 0.0]]), np.array([[0.0, 100.0]])
    assert probability_of_improvement(first, other) == pytest.approx(0.5)


def test_an_interval_draws_each_task_from_its_own_runs() -> None:
    scores = np.array([[0.0, 100.0]] * 5)  # all runs of a task are equal, so the statistic must not vary
    interval = stratified_interval(lambda array: float(array.mean()), scores, resamples=50)
    assert (interval.low, interval.estimate, interval.high) == (50.0, 50.0, 50.0)


def test_the_interval_of_a_mean_has_the_width_of_its_standard_error() -> None:
    scores = np.random.default_rng(1).normal(size=400)
    interval = stratified_interval(lambda array: float(array.mean()), scores, resamples=2000)
    error = scores.std() / 20
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * error, rel=0.08)


def test_a_method_is_compared_with_the_first_and_the_first_with_none() -> None:
    standing = standings({"base": [0.1, 0.2, 0.3], "better": [0.7, 0.8, 0.9]}, resamples=100)
    assert [rollout.method for rollout in standing] == ["base", "better"] and standing[0].improvement is None
    assert (
        standing[1].improvement is not None and standing[1].improvement.low == standing[1].improvement.estimate == 1.0
    )
    assert standing[1].middle.estimate == pytest.approx(0.8)


@pytest.mark.parametrize(("scores", "said"), [([], "no scores"), ([1.0, float("nan")], "not finite")])
def test_scores_that_are_none_are_one_clear_line(scores: list[float], said: str) -> None:
    with pytest.raises(UserError, match=said):
        stratified_interval(interquartile_mean, scores)


def test_methods_measured_on_different_tasks_are_refused() -> None:
    with pytest.raises(UserError, match="2 tasks against scores on 1"):
        probability_of_improvement(np.ones((2, 2)), np.ones((2, 1)))
