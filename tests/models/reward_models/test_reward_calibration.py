"""The report on a reward model's calibration: values by hand, and data sets whose calibration is known."""

import math

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.bootstrap import wilson
from models.reward_models.calibration import pair_report


def log_odds(probability: float) -> float:
    return float(np.log(probability / (1 - probability)))


def test_four_pairs_by_hand() -> None:
    # The confidences are 0.6, 0.6, 0.9, 0.9; the model ranks the first, third and fourth pair correctly.
    report = pair_report([log_odds(0.6), -log_odds(0.6), log_odds(0.9), log_odds(0.9)], bins=2)
    assert report.accuracy.estimate == 0.75
    assert [(b.low, b.high, b.pairs, b.accuracy) for b in report.curve] == [(0.5, 0.75, 2, 0.5), (0.75, 1.0, 2, 1.0)]
    assert [b.confidence for b in report.curve] == pytest.approx([0.6, 0.9])
    assert report.calibration_error == pytest.approx(0.5 * 0.1 + 0.5 * 0.1)
    assert report.log_loss == pytest.approx(-(math.log(0.6) + math.log(0.4) + 2 * math.log(0.9)) / 4)


def test_a_perfectly_calibrated_model_has_no_calibration_error_but_noise() -> None:
    chance = np.random.default_rng(0)
    margin = np.abs(chance.normal(0, 2, 100_000))
    right = chance.random(margin.size) < 1 / (1 + np.exp(-margin))
    assert pair_report(np.where(right, margin, -margin)).calibration_error < 0.01
    boastful = pair_report(np.where(right, 3 * margin, -3 * margin))  # the same ranking, with three times the margin
    assert boastful.calibration_error > 0.1


def test_folding_a_pair_equals_using_it_in_both_orders() -> None:
    margin = np.random.default_rng(1).normal(0.5, 1.5, 2000)
    probability = 1 / (1 + np.exp(-np.concatenate([margin, -margin])))
    outcome = np.concatenate([np.ones(2000), np.zeros(2000)])
    place = np.floor(probability * 20)  # 20 bins over [0, 1]: the 10 bins of the report and their mirror images
    both = sum(abs((probability - outcome)[place == index].sum()) for index in range(20)) / 4000
    assert pair_report(margin, bins=10).calibration_error == pytest.approx(both, abs=1e-12)


def test_ties_count_half_and_know_nothing() -> None:
    report = pair_report([0.0, 0.0])
    assert report.accuracy.estimate == 0.5 and report.calibration_error == 0.0
    assert report.log_loss == pytest.approx(math.log(2))


def test_accuracy_is_told_apart_by_kind_of_flaw() -> None:
    report = pair_report([1, 1, -1, 2, -1], ["slip", "slip", "slip", "sign_lost", ""])
    assert {flaw: i.estimate for flaw, i in report.by_flaw.items()} == {"sign_lost": 1.0, "slip": pytest.approx(2 / 3)}
    assert report.pairs_by_flaw == {"sign_lost": 1, "slip": 3}
    assert report.metrics()["accuracy_sign_lost"] == 1.0


def test_wilson_is_the_published_interval() -> None:
    interval = wilson(8, 10)  # Newcombe (1998): 0.4902 to 0.9433
    assert [interval.low, interval.high] == pytest.approx([0.4902, 0.9433], abs=5e-5)
    assert wilson(10, 10).high == 1.0 and wilson(0, 10).low == 0.0


def test_extreme_margins_neither_overflow_nor_lose_a_pair() -> None:
    report = pair_report([1e6, -1e6, 1e-12])
    assert sum(b.pairs for b in report.curve) == 3 and math.isfinite(report.log_loss)


def test_what_cannot_be_judged_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match="no held-out pairs"):
        pair_report([])
    with pytest.raises(UserError, match="pair 1 is not finite"):
        pair_report([0.0, float("nan")])
    with pytest.raises(UserError, match="1 flaws for 2 pairs"):
        pair_report([0.0, 1.0], ["slip"])
