"""The changes that guards measure: estimates against values by hand, errors against the deviation over many draws."""

import math
from typing import Any

import numpy as np
import pytest

from models.evaluation.gate.changes import divergence_change, gap_change, mean_change, ratio, share_change, too_few
from models.evaluation.metrics import auc


def drawn(
    chance: np.random.Generator, n: int = 300, samples: int = 8, lift: float = 0.0, gain: float = 1.2
) -> tuple[Any, Any]:
    """Return the scores and the correctness, each [n, samples], of a policy on prompts that are drawn for it."""
    ease = chance.normal(0.5 + lift, 1.5, size=(n, 1))
    correct = (chance.random((n, samples)) < 1 / (1 + np.exp(-ease))).astype(float)
    return gain * correct + 0.5 * ease + chance.normal(size=correct.shape), correct


CASES = {
    "mean": lambda new, old: mean_change(new[1].mean(axis=1), old[1].mean(axis=1)),
    "ratio": lambda new, old: ratio(2 + new[0].mean(axis=1), 2 + old[0].mean(axis=1)),
    "divergence": lambda new, old: divergence_change(*new, *old),
    "gap": lambda new, old: gap_change(*new, *old),
}


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_the_deviation_of_the_estimate_over_many_draws(name: str) -> None:
    chance = np.random.default_rng(5)
    measured = [CASES[name](drawn(chance, lift=0.3, gain=1.5), drawn(chance)) for _ in range(400)]
    spread = np.std([change.estimate for change in measured])
    assert np.mean([change.error for change in measured]) == pytest.approx(spread, rel=0.12)


def test_the_divergence_is_the_difference_of_two_areas() -> None:
    chance = np.random.default_rng(6)
    (new, new_right), (old, old_right) = drawn(chance), drawn(chance)
    areas = [auc(scores.ravel(), right.ravel() > 0) for scores, right in ((new, new_right), (old, old_right))]
    assert divergence_change(new, new_right, old, old_right).estimate == pytest.approx(areas[1] - areas[0])


def test_the_gap_is_what_the_reward_rose_beyond_the_truth() -> None:
    # The scores have mean 0 and deviation 1, the accuracy is 1/2.
    right, scores = np.array([[1.0, 0.0]] * 3), np.array([[1.0, -1.0]] * 3)
    assert gap_change(scores, right, scores, right).estimate == 0.0
    assert gap_change(np.full((3, 2), 3.0), right, scores, right).estimate == pytest.approx(3.0)
    assert gap_change(np.ones((3, 2)), np.ones((3, 2)), scores, right).estimate == 0.0  # one deviation each
    # Equal old scores have no deviation to measure a rise in.
    assert math.isnan(gap_change(scores, right, np.ones((3, 2)), right).estimate)


def test_a_share_never_seen_in_n_prompts_is_bounded_by_the_rule_of_three() -> None:
    none = np.zeros(300)
    assert share_change(none, none, 0.95, 1).bound(0.95, 1) == pytest.approx(3 / 300, rel=0.01)
    assert share_change(none, none, 0.95, -1).bound(0.95, -1) == pytest.approx(-3 / 300, rel=0.01)


def test_what_only_got_worse_is_never_bounded_closer_than_what_did_not_change() -> None:
    chance = np.random.default_rng(8)
    for prompts in (2, 5, 40, 460):
        old = np.ones(prompts)
        for worse in (1, prompts // 2, prompts):
            for least in (0.0, 0.9, 0.9999):
                new = old.copy()
                new[:worse] = least + (1 - least) * chance.random(worse)
                for side, (left, right) in {-1: (new, old), 1: (1 - new, 1 - old)}.items():
                    changed = side * share_change(left, right, 0.95, side).bound(0.95, side)
                    assert changed >= side * share_change(old, old, 0.95, side).bound(0.95, side)


def test_the_bound_of_a_share_is_that_of_one_prompt_more_that_changed_wholly() -> None:
    chance = np.random.default_rng(9)
    new, old = chance.random(50), chance.random(50)
    for side in (1, -1):
        more = np.append(new - old, side)
        student = 1.6766 * more.std(ddof=1) / math.sqrt(51)  # t quantile, 49 degrees, 95 %
        change = share_change(new, old, 0.95, side)
        assert change.estimate == pytest.approx((new - old).mean())
        assert change.bound(0.95, side) == pytest.approx(more.mean() + side * student, rel=1e-3)


@pytest.mark.parametrize("margin", [0.02, 0.05, 0.1])
def test_a_fall_of_the_margin_passes_in_at_most_7_of_100_also_where_falls_are_rare(margin: float) -> None:
    """The sum over all numbers of falls is exact. With the standard error alone, up to 20 of 100 would pass."""
    for prompts in range(20, 481, 20):
        old, passes, fallen = np.ones(prompts), 0.0, 0
        while True:
            new = old.copy()
            new[:fallen] = 0.0
            if share_change(new, old, 0.95, -1).bound(0.95, -1) < -margin:
                break
            passes += math.comb(prompts, fallen) * margin**fallen * (1 - margin) ** (prompts - fallen)
            fallen += 1
        assert passes <= 0.07


def test_the_bound_is_students_of_a_normal_sample() -> None:
    values = np.random.default_rng(7).normal(size=12)
    expected = values.mean() + 1.7959 * values.std(ddof=1) / math.sqrt(12)  # t quantile, 11 degrees, 95 %
    assert mean_change(values, np.zeros(12)).bound(0.95, 1) == pytest.approx(expected, rel=0.01)


def test_right_and_wrong_are_compared_only_where_enough_prompts_have_each() -> None:
    correct = np.ones((20, 4))
    correct[:4, 0] = 0
    assert too_few(correct) == "4 of 20 prompts have a wrong sample, too few to compare right with wrong"
    correct[4, 0] = 0
    assert too_few(correct) == ""
    assert "have a right sample" in too_few(1 - np.ones((20, 4)))
