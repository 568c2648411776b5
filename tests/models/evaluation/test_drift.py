"""Drift between two samples: the stability index, the tests and Holm's correction, against values by hand."""

import math

import numpy as np
import pytest

from models.base.errors import UserError
from models.evaluation.drift import DriftSettings, bin_edges, binned, drifts, holm, stability_index, two_sample_test
from models.evaluation.samples import Kinds, Numbers, Sample, as_json, from_json

KINDS = Kinds.of(["whole number"] * 30 + ["word"] * 10)


def normal(seed: int, size: int = 400, mean: float = 0.0) -> Numbers:
    return Numbers.of(np.random.default_rng(seed).normal(mean, 1.0, size))


def index_of(before: Numbers | Kinds, after: Numbers | Kinds) -> float:
    _, *counts = binned(before, after)
    return stability_index(*counts)


def test_the_index_is_the_one_computed_by_hand() -> None:
    by_hand = (0.5 - 0.25) * math.log(0.5 / 0.25) + (0.5 - 0.75) * math.log(0.5 / 0.75)
    assert stability_index([50, 50], [25, 75]) == pytest.approx(by_hand, abs=1e-15)
    assert by_hand == pytest.approx(0.274653, abs=1e-6)


def test_the_index_is_zero_of_equal_shares_whatever_the_sizes_and_positive_otherwise() -> None:
    assert stability_index([3, 0, 9], [300, 0, 900]) == 0.0
    chance = np.random.default_rng(0)
    for _ in range(50):
        old, new = chance.integers(0, 40, (2, 8)) + np.eye(8, dtype=int)[0]
        assert stability_index(old, new) > 0.0


def test_the_index_is_the_same_either_way_round_and_in_any_order_of_bins() -> None:
    chance = np.random.default_rng(1)
    for _ in range(20):
        old, new = chance.integers(0, 30, (2, 10)) + 1 * (np.arange(10) == 4)
        order = chance.permutation(10)
        index = stability_index(old, new)
        assert stability_index(new, old) == pytest.approx(index, rel=1e-12)
        assert stability_index(old[order], new[order]) == pytest.approx(index, rel=1e-12)


def test_an_empty_bin_counts_as_half_an_observation_and_tells_more_the_more_were_seen() -> None:
    def moved(size: int) -> float:
        return stability_index([size, 0], [0, size])

    half = 0.5 / 10
    assert moved(10) == pytest.approx(2 * (1 - half) * math.log(1 / half), rel=1e-12)
    indices = [moved(size) for size in (10, 100, 1000, 10_000)]
    assert indices == sorted(indices) and all(map(math.isfinite, indices))
    # Ten times as many observations add ln(10) for each of the two bins.
    assert indices[3] - indices[2] == pytest.approx(2 * math.log(10), rel=1e-2)
    assert stability_index([10, 5, 0], [7, 5, 0]) == stability_index([10, 5], [7, 5])


@pytest.mark.parametrize(("old", "new"), [([1, 2], [1, 2, 3]), ([0, 0], [1, 2]), ([1, 2], [0, 0])])
def test_counts_of_other_bins_and_of_nothing_are_refused(old: list[int], new: list[int]) -> None:
    with pytest.raises(UserError, match="stability index"):
        stability_index(old, new)


def test_bins_hold_equal_shares_of_the_older_sample_and_none_beyond_it() -> None:
    older = Numbers.of(np.arange(1000))
    _, old, new = binned(older, Numbers.of([-5.0, 999.5, 10.0]), bins=10)
    assert old.tolist() == [0.0, *[100.0] * 10, 0.0]
    assert (new[0], new[-1], new.sum()) == (1.0, 1.0, 3.0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([5] * 100, [3] * 100),
        ([5] * 100, [7] * 100),
        ([5] * 5 + [6] * 95, [5] * 100),
        ([6] * 91 + [1, 2, 3, 4, 7, 8, 9, 10, 11], [5] * 100),
    ],
)
def test_a_value_that_is_frequent_cannot_hide_a_shift_beside_it(before: list[int], after: list[int]) -> None:
    assert index_of(Numbers.of(before), Numbers.of(before)) == 0.0
    assert index_of(Numbers.of(before), Numbers.of(after)) > 1.0


def test_the_order_of_a_sample_changes_nothing() -> None:
    values = np.random.default_rng(2).gamma(2.0, size=300)
    assert Numbers.of(values) == Numbers.of(values[::-1])
    assert Kinds.of("abca") == Kinds.of("caab")


def test_an_index_of_numbers_does_not_change_with_their_unit() -> None:
    old, new = np.random.default_rng(3).integers(0, 50, (2, 500))
    assert index_of(Numbers.of(old), Numbers.of(new)) == index_of(Numbers.of(8 * old), Numbers.of(8 * new))


def test_numbers_are_tested_by_kolmogorov_and_smirnov() -> None:
    statistic, p_value = two_sample_test(Numbers.of([1, 2, 3, 4]), Numbers.of([5, 6, 7, 8]))
    # Of the 70 ways to divide eight values into two samples of four, two separate them completely.
    assert statistic == 1.0 and p_value == pytest.approx(2 / 70, rel=1e-12)
    assert two_sample_test(normal(0), normal(0)) == (0.0, 1.0)


def test_kinds_are_tested_by_chi_squared() -> None:
    statistic, p_value = two_sample_test(Kinds({"a": 10, "b": 20}), Kinds({"a": 20, "b": 10}))
    assert statistic == pytest.approx(20 / 3, rel=1e-12)  # four cells with expectation 15, each off by 5
    assert p_value == pytest.approx(math.erfc(math.sqrt(20 / 3 / 2)), rel=1e-12)  # one degree of freedom
    assert two_sample_test(Kinds({"a": 5}), Kinds({"a": 9})) == (0.0, 1.0)


def test_numbers_against_kinds_and_nothing_at_all_are_refused() -> None:
    with pytest.raises(UserError, match="numbers cannot be compared with kinds"):
        two_sample_test(normal(0), KINDS)
    with pytest.raises(UserError, match="empty"):
        two_sample_test(normal(0), Numbers.of([math.nan]))


def test_holms_correction_is_the_one_computed_by_hand_and_never_changes_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == [] and holm([0.2]) == [0.2]
    p_values = np.random.default_rng(4).random(12).tolist()
    corrected = holm(p_values)
    order = sorted(range(12), key=lambda place: p_values[place])
    assert [corrected[place] for place in order] == sorted(corrected)
    assert all(p <= after <= min(1.0, 12 * p) for p, after in zip(p_values, corrected, strict=True))


@pytest.mark.rotating(of=6)
def test_features_that_did_not_change_are_marked_no_more_often_than_the_level() -> None:
    # The index always exceeds these limits, so only the tests decide.
    settings = DriftSettings(level=0.05, shifted=1e-9, drifted=1e-8)
    marked = 0
    for night in range(300):
        before, after = ({str(n): normal(2000 * night + 2 * n + side, 60) for n in range(4)} for side in (0, 1))
        marked += any(drift.state != "stable" for drift in drifts(before, after, settings))
    assert marked <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_drift_needs_both_a_large_index_and_a_small_p_value() -> None:
    def state(before: Numbers, after: Numbers) -> str:
        (drift,) = drifts({"x": before}, {"x": after})
        return drift.state

    assert state(normal(0, 1000), normal(1, 1000, mean=1.0)) == "drifted"
    assert state(normal(0, 1000), normal(1, 1000, mean=0.4)) == "shifted"
    assert state(normal(0, 20_000), normal(1, 20_000, mean=0.1)) == "stable"  # significant, but small
    (few,) = drifts({"x": normal(0, 10)}, {"x": normal(1, 10)})
    assert few.index > 0.25 and few.state == "stable"  # large, but by chance


def test_only_features_that_both_sides_have_are_compared() -> None:
    before: dict[str, Sample] = {"a": normal(0), "b": KINDS, "gone": KINDS, "nothing": Numbers.of([])}
    after: dict[str, Sample] = {"b": KINDS, "a": normal(1), "new": KINDS, "nothing": normal(0)}
    assert [drift.name for drift in drifts(before, after)] == ["a", "b"]
    for drift in drifts(before, after):
        assert all(sum(side) == pytest.approx(1.0) for side in drift.shares)
        assert len(drift.bins) == len(set(drift.bins)) == len(drift.shares[0]) == len(drift.shares[1])


def test_labels_say_what_a_bin_holds() -> None:
    labels, *_ = binned(Numbers.of([5] * 10), Numbers.of([5]))
    assert labels == ["< 5", "5", "> 5"]
    assert bin_edges(Numbers.of([5] * 10), 10).size == 2
    labels, *_ = binned(Numbers.of(range(1, 101)), Numbers.of([5]), bins=2)
    assert labels == ["< 1", "≤ 50", "≤ 100", "> 100"]


def test_samples_come_back_from_the_disk_as_they_were() -> None:
    samples: dict[str, Sample] = {"numbers": normal(0), "kinds": KINDS, "none": Numbers.of([])}
    assert from_json(as_json(samples)) == samples
    for broken in ("", "[]", '{"x": 1}', '{"x": {"values": [1], "counts": []}}'):
        with pytest.raises(UserError, match="samples cannot be read"):
            from_json(broken)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UserError, match=r"drift\.shifted"):
        DriftSettings(shifted=0.5)
