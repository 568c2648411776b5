"""Statistics of how scores rank samples, compared with enumerations, limiting cases and values by hand."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from models.base.errors import UserError
from models.reward_models.ranking import (
    agreement,
    best_of_n,
    one_against,
    one_against_many,
    rank_correlation,
    separation,
    spearman,
)

SCORES = np.array([[0.3, -1.0, 2.0, 0.5], [1.0, 1.0, -2.0, 0.0]])
RIGHT = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_best_of_n_is_the_mean_over_all_draws_of_n_samples(n: int) -> None:
    for scores, truth, worth in zip(SCORES, RIGHT, best_of_n(SCORES, RIGHT, n), strict=True):
        # Equal scores count as the mean over all orders of the samples.
        values = [
            truth[max(drawn, key=lambda place: (scores[place], order[place]))]
            for drawn in combinations(range(4), n)
            for order in permutations(range(4))
        ]
        assert worth == pytest.approx(np.mean(values), abs=1e-12)


def test_the_best_of_one_is_the_mean_and_of_all_is_that_of_the_highest_score() -> None:
    assert best_of_n(SCORES, RIGHT, 1) == pytest.approx([0.5, 0.5])
    # The score 2.0 is wrong. Of the two samples with score 1.0, one is right.
    assert best_of_n(SCORES, RIGHT, 4) == pytest.approx([0.0, 0.5])


def test_a_judge_that_is_the_truth_does_as_well_as_the_truth_can() -> None:
    for n in (1, 2, 3, 4):
        misses = [np.mean([not truth[list(drawn)].any() for drawn in combinations(range(4), n)]) for truth in RIGHT]
        assert best_of_n(RIGHT, RIGHT, n) == pytest.approx(1 - np.array(misses))


def test_separation_counts_pairs_of_a_right_and_a_wrong_sample() -> None:
    # First row: right 0.3 and 0.5, wrong -1 and 2, so 2 of 4 pairs are ordered correctly. Second row: right 1 and -2,
    # wrong 1 and 0: a tie, one ordered correctly, two not.
    assert separation(SCORES, RIGHT) == pytest.approx([2 / 4, 1.5 / 4])


def test_one_against_many_is_decided_by_the_hardest_wrong_sample() -> None:
    assert one_against_many(SCORES, RIGHT) == pytest.approx([0.0, 0.5])
    assert one_against_many([[2.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]]) == pytest.approx([1.0])


@pytest.mark.parametrize("drawn", [1, 2, 3, 4])
def test_one_against_n_is_the_mean_over_all_draws_of_wrong_samples_and_orders_of_equal_scores(drawn: int) -> None:
    right, wrong = [0.7, 0.2], [0.1, 0.7, 0.9, 0.2]
    firsts, ranks = [], []
    for own in right:
        for chosen in combinations(wrong, drawn):
            for order in permutations(range(drawn + 1)):  # place 0 is the right sample
                scored = [(own, order[0]), *((score, order[place + 1]) for place, score in enumerate(chosen))]
                rank = 1 + sum(entry > scored[0] for entry in scored[1:])
                firsts.append(rank == 1)
                ranks.append(1 / rank)
    measured = one_against([right + wrong], [[1, 1, 0, 0, 0, 0]], drawn)
    assert measured.first == pytest.approx([np.mean(firsts)], abs=1e-12)
    assert measured.reciprocal_rank == pytest.approx([np.mean(ranks)], abs=1e-12)


def test_against_one_wrong_sample_it_is_the_separation_and_against_all_with_one_right_sample_one_against_many() -> None:
    scores = np.random.default_rng(0).normal(size=(40, 10))
    truth = np.zeros_like(scores)
    truth[:, 0] = 1
    assert one_against(scores, truth, 1).first == pytest.approx(separation(scores, truth))
    assert one_against(scores, truth, 9).first == pytest.approx(one_against_many(scores, truth))


def test_equal_scores_are_right_in_one_of_ten_and_have_the_mean_reciprocal_rank_of_a_random_order() -> None:
    truth = np.zeros((1, 10))
    truth[0, 3] = 1
    measured = one_against(np.zeros((1, 10)), truth, 9)
    assert measured.first == pytest.approx([0.1])
    assert measured.reciprocal_rank == pytest.approx([np.mean([1 / rank for rank in range(1, 11)])])


def test_a_prompt_with_too_few_wrong_samples_is_left_out_and_none_to_compare_with_is_refused() -> None:
    measured = one_against([[2.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]], 3)
    assert np.isnan(measured.first).all() and np.isnan(measured.reciprocal_rank).all()
    with pytest.raises(UserError, match="needs a wrong one"):
        one_against(SCORES, RIGHT, 0)


def test_a_prompt_without_a_pair_is_left_out() -> None:
    for statistic in (separation, one_against_many):
        assert np.isnan(statistic([[1.0, 2.0]], [[1.0, 1.0]])).all()
        assert np.isnan(statistic([[1.0, 2.0]], [[0.0, 0.0]])).all()


def test_what_order_says_does_not_hang_on_the_unit_of_the_score() -> None:
    for statistic in (separation, one_against_many):
        assert statistic(np.exp(3 * SCORES), RIGHT) == pytest.approx(statistic(SCORES, RIGHT))
    assert best_of_n(7 * SCORES - 3, RIGHT, 2) == pytest.approx(best_of_n(SCORES, RIGHT, 2))


def test_agreement_is_one_with_oneself_zero_with_ones_opposite_and_half_with_who_says_nothing() -> None:
    distinct = SCORES[:1]
    assert agreement(distinct, distinct) == pytest.approx([1.0])
    assert agreement(distinct, -distinct) == pytest.approx([0.0])
    assert agreement(distinct, np.zeros_like(distinct)) == pytest.approx([0.5])
    assert agreement([[1.0, 2.0, 3.0]], [[1.0, 3.0, 2.0]]) == pytest.approx([2 / 3])


def test_rank_correlation_is_of_means_over_prompts_and_undefined_without_spread() -> None:
    scores = [[0.0, 2.0], [5.0, 5.0], [1.0, 1.1]]
    assert rank_correlation(scores, [[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]) == pytest.approx(1.0)
    assert np.isnan(rank_correlation(scores, np.ones((3, 2))))
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 2 / (4 * 15))


@pytest.mark.parametrize(
    ("scores", "right", "said"),
    [
        ([[float("nan"), 1.0]], [[1.0, 0.0]], "prompt 0 is not finite"),
        ([[1.0, 2.0]], [[1.0]], r"\[1, 2\] for truths of shape \[1, 1\]"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "shape"),
        ([1.0], [1.0], "shape"),
    ],
)
def test_what_cannot_be_ordered_is_refused_in_one_line(scores: object, right: object, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        separation(scores, right)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)


def test_more_samples_than_there_are_is_refused() -> None:
    with pytest.raises(UserError, match="best of 5 needs 5 samples a prompt, there are 4"):
        best_of_n(SCORES, RIGHT, 5)
    with pytest.raises(UserError, match="two samples a prompt"):
        agreement([[1.0]], [[1.0]])
