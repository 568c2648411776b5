"""Bootstrap intervals: they cover the truth as often as their confidence requires, and pairing makes them narrower."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from models.base.errors import UserError
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap, unpaired_bootstrap


def evaluations(seed: int, prompts: int = 150, gain: float = 0.1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sampled accuracies of two policies on the same prompts; their true mean difference is `gain`."""
    chance = np.random.default_rng(seed)
    ease = chance.beta(1, 1, prompts) * (1 - gain)
    return chance.binomial(8, ease + gain) / 8, chance.binomial(8, ease) / 8


@pytest.mark.parametrize("method", [paired_bootstrap, unpaired_bootstrap])
def test_an_interval_of_95_percent_covers_the_truth_in_about_95_of_100(method: Callable[..., Interval]) -> None:
    hits = 0
    for seed in range(300):
        left, right = evaluations(seed)
        if method is unpaired_bootstrap:
            left = evaluations(10_000 + seed)[0]  # other prompts than those of `right`
        interval = method(left, right, resamples=600, seed=seed)
        hits += interval.low <= 0.1 <= interval.high
    assert 0.91 <= hits / 300 <= 0.985


def test_pairing_takes_the_difficulty_of_the_prompts_out() -> None:
    left, right = evaluations(0)
    paired, unpaired = paired_bootstrap(left, right), unpaired_bootstrap(left, right)
    assert paired.estimate == pytest.approx(unpaired.estimate)
    assert paired.high - paired.low < 0.7 * (unpaired.high - unpaired.low)


def test_it_agrees_with_the_normal_interval_of_a_large_sample() -> None:
    values = np.random.default_rng(3).normal(2.0, 1.0, 4000)
    half = 1.96 * values.std() / np.sqrt(4000)
    interval = bootstrap_mean(values)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_a_model_differs_from_itself_by_exactly_nothing() -> None:
    values = evaluations(1)[0]
    assert paired_bootstrap(values, values) == Interval(0.0, 0.0, 0.0)
    assert unpaired_bootstrap(values, values).low < 0 < unpaired_bootstrap(values, values).high


def test_equal_seeds_give_equal_intervals_however_the_draws_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = evaluations(2)
    first = paired_bootstrap(left, right, seed=7)
    assert first == paired_bootstrap(left, right, seed=7) != paired_bootstrap(left, right, seed=8)
    monkeypatch.setattr("models.evaluation.bootstrap._DRAWN_AT_ONCE", 1000)
    assert first == paired_bootstrap(left, right, seed=7)


def test_more_confidence_is_a_wider_interval() -> None:
    left, right = evaluations(2)
    wide, narrow = (paired_bootstrap(left, right, confidence=confidence) for confidence in (0.99, 0.8))
    assert wide.low < narrow.low < narrow.estimate < narrow.high < wide.high


def test_what_cannot_be_compared_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="2 candidate values against 1 baseline values"):
        paired_bootstrap([0.0, 1.0], [0.0])
    with pytest.raises(UserError, match="no values"):
        bootstrap_mean([])
    with pytest.raises(UserError, match=r"values\[1\] is not finite"):
        bootstrap_mean([0.0, float("nan")])
