"""Comparison of methods over a few runs: interquartile mean, probability of improvement, and their intervals."""

import itertools

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.aggregate import (
    interquartile_mean,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    profiles,
    shares_above,
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


def test_scores_above_the_target_do_not_reduce_the_optimality_gap() -> None:
    assert optimality_gap([[0.5, 1.5], [0.9, 3.0]]) == pytest.approx((0.5 + 0.1) / 4)
    assert optimality_gap([2.0, 3.0]) == 0.0
    assert optimality_gap([2.0, 3.0], target=4.0) == pytest.approx(1.5)


def test_below_the_target_the_optimality_gap_is_the_distance_of_the_mean() -> None:
    scores = np.random.default_rng(2).uniform(0, 1, size=(7, 3))
    assert optimality_gap(scores) == pytest.approx(1 - scores.mean(), abs=1e-15)


def test_a_profile_counts_scores_strictly_above_each_threshold() -> None:
    shares = shares_above([[0.1, 0.5], [0.5, 0.9]], [0.0, 0.1, 0.5, 0.7, 0.9])
    np.testing.assert_array_equal(shares, [1.0, 0.75, 0.25, 0.25, 0.0])


def test_the_area_under_the_profile_of_shares_is_their_mean() -> None:
    scores = np.random.default_rng(3).uniform(0, 1, size=(5, 4))
    thresholds = np.linspace(0, 1, 200_001)
    area = np.trapezoid(shares_above(scores, thresholds), thresholds)  # the integral of P(score > t) over [0, 1]
    assert area == pytest.approx(scores.mean(), abs=1e-5)
    assert 1 - area == pytest.approx(optimality_gap(scores), abs=1e-5)


def test_the_band_of_a_profile_has_the_width_of_a_share_of_that_many_runs() -> None:
    scores = np.random.default_rng(4).uniform(0, 1, size=400)
    profile = performance_profile(scores, [0.5])
    share = float(profile.shares[0])
    assert profile.high[0] - profile.low[0] == pytest.approx(2 * 1.96 * (share * (1 - share) / 400) ** 0.5, rel=0.08)


def test_runs_that_are_equal_within_each_task_give_a_profile_without_a_band() -> None:
    profile = performance_profile(np.array([[0.2, 0.8]] * 5), [0.1, 0.5, 0.9], resamples=50)
    for shares in (profile.low, profile.shares, profile.high):
        np.testing.assert_array_equal(shares, [1.0, 0.5, 0.0])


def test_the_profiles_of_a_comparison_have_the_same_thresholds_from_the_lowest_score_to_the_highest() -> None:
    base, better = profiles({"base": [0.1, 0.2], "better": [0.3, 0.4]}, points=4).values()
    np.testing.assert_allclose(base.thresholds, [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_array_equal(base.thresholds, better.thresholds)
    assert (better.shares >= base.shares).all()  # the better method is above at every threshold


def test_the_gap_of_a_standing_is_measured_from_the_target() -> None:
    (standing,) = standings({"base": [0.1, 0.2, 0.3]}, target=0.5, resamples=100)
    assert standing.gap.estimate == pytest.approx(0.3) and standing.gap.low <= 0.3 <= standing.gap.high


@pytest.mark.parametrize("thresholds", [[], [0.1, float("nan")], [[0.1]]])
def test_thresholds_that_are_no_list_of_finite_numbers_are_refused(thresholds: list[float]) -> None:
    with pytest.raises(UserError, match="thresholds of a profile"):
        performance_profile([0.1, 0.2], thresholds)


def test_all_statistics_equal_those_of_the_authors_library() -> None:
    """The library `rliable` is not a dependency: its values are constants, and are computed where it is installed."""
    chance = np.random.default_rng(5)
    first, other = chance.normal(0.5, 0.4, size=(6, 5)), chance.normal(0.6, 0.4, size=(4, 5))
    other[0] = first[0]  # ties
    # values of rliable 1.2 for these arrays
    assert interquartile_mean(first) == pytest.approx(0.3902642164007487, abs=1e-12)
    assert optimality_gap(first) == pytest.approx(0.5964805924492629, abs=1e-12)
    assert probability_of_improvement(first, other) == pytest.approx(0.5208333333333333, abs=1e-12)
    metrics, library = pytest.importorskip("rliable.metrics"), pytest.importorskip("rliable.library")
    assert interquartile_mean(first) == pytest.approx(metrics.aggregate_iqm(first), abs=1e-12)
    assert optimality_gap(first, 0.7) == pytest.approx(metrics.aggregate_optimality_gap(first, 0.7), abs=1e-12)
    expected = metrics.probability_of_improvement(first, other)
    assert probability_of_improvement(first, other) == pytest.approx(expected, abs=1e-12)
    thresholds = np.linspace(-0.5, 1.5, 41)
    expected = library.score_distributions(first, thresholds)
    np.testing.assert_allclose(performance_profile(first, thresholds).shares, expected, rtol=0, atol=1e-12)
