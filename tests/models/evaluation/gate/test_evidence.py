"""Evidence for a difference: the e-value is valid far in the tail, and the detectable difference is correct."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from models.evaluation.gate.evidence import (
    BETS,
    detectable_difference,
    log_e_value,
    problems_needed,
    spread_of_differences,
)


def test_the_e_value_is_the_mean_over_bets_of_the_product_of_their_returns() -> None:
    differences = np.array([0.5, -0.25, 0.0])
    by_hand = np.mean([(1 + bet * 0.5) * (1 - bet * 0.25) for bet in BETS])
    assert log_e_value(differences) == pytest.approx(math.log(by_hand))
    assert log_e_value(differences, repeats=3) == pytest.approx(log_e_value(np.tile(differences, 3)))


@pytest.mark.parametrize("up", [0.1, 0.9])
def test_at_a_mean_of_zero_the_expected_stake_is_exactly_one(up: float) -> None:
    """The sum is over all outcomes of eight skewed differences of mean zero: 1 - up, with probability up, or -up."""
    rise, fall = (1 - up), -up
    total = 0.0
    for ups in itertools.product((True, False), repeat=8):
        chance = math.prod(up if entry else 1 - up for entry in ups)
        total += chance * math.exp(log_e_value(np.array([rise if up else fall for up in ups])))
    assert total == pytest.approx(1.0)


def test_levels_whose_means_differ_but_add_up_to_zero_gain_nothing() -> None:
    """The sum is over all outcomes of eight differences, 1 or -1: four have mean 0.3 and four have mean -0.3."""
    total = 0.0
    for ups in itertools.product((True, False), repeat=8):
        chances = [0.65 if number < 4 else 0.35 for number in range(8)]
        chance = math.prod(p if up else 1 - p for p, up in zip(chances, ups, strict=True))
        total += chance * math.exp(log_e_value(np.where(ups, 1.0, -1.0)))
    assert total <= 1.0


def test_in_the_tail_a_t_test_of_few_skewed_differences_errs_and_the_e_value_does_not() -> None:
    """Losses are rare and large, gains common and small, and the mean is zero: most samples contain no loss at all."""
    chance, alpha, n = np.random.default_rng(0), 1e-4, 100
    by_t = by_evidence = 0
    for _ in range(4000):
        lost = chance.random(n) < 0.002
        drawn = np.where(lost, -0.998, 0.002) + chance.normal(size=n) * 1e-5
        by_t += drawn.mean() / (drawn.std(ddof=1) / math.sqrt(n)) > 3.95
        by_evidence += log_e_value(np.clip(drawn, -1, 1)) >= -math.log(alpha)
    assert by_evidence == 0 and by_t / 4000 > 0.5  # alpha allows one in ten thousand


def test_the_detectable_difference_is_found_in_about_80_of_100() -> None:
    chance = np.random.default_rng(1)
    alpha, n = 1e-3, 460

    def differences(mean: float) -> Any:
        return np.clip(chance.normal(mean, 0.16, size=n), -1, 1)

    stated = float(np.mean([detectable_difference(differences(0.0), alpha) for _ in range(20)]))
    assert 0.02 < stated < 0.06
    measured = np.mean([log_e_value(differences(stated)) >= -math.log(alpha) for _ in range(400)])
    assert 0.72 < measured < 0.88


def test_without_a_budget_or_with_too_few_problems_nothing_is_detectable() -> None:
    assert detectable_difference(np.linspace(-0.1, 0.1, 460), 0.0) == math.inf
    assert detectable_difference(np.linspace(-0.1, 0.1, 6), 1e-4) == math.inf


def test_the_problems_needed_find_the_difference_in_about_80_of_100() -> None:
    chance = np.random.default_rng(2)
    needed = problems_needed(0.16, 0.03, 1e-3)
    measured = np.mean(
        [log_e_value(np.clip(chance.normal(0.03, 0.16, size=needed), -1, 1)) >= -math.log(1e-3) for _ in range(300)]
    )
    assert 0.7 < measured < 0.9
    assert problems_needed(0.16, 0.015, 1e-3) == pytest.approx(4 * needed, rel=0.15)


def test_the_spread_is_that_of_paired_draws_of_the_same_chances() -> None:
    chance = np.random.default_rng(3)
    right = chance.beta(1, 1, 20_000)
    correct = (chance.random((20_000, 8)) < right[:, None]).astype(float)
    first, two = (chance.binomial(16, right) / 16 for _ in range(2))
    assert spread_of_differences(correct, 16, own=0.0) == pytest.approx((first - two).std(), rel=0.02)
