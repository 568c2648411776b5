"""The simulated error rate of `rewardflow judge`."""

import json

import pytest

from benchmarks.claims.judge_errors import BUDGET, METRICS, RESULT, measure


@pytest.mark.parametrize("metric", METRICS)
def test_few_pairs_of_equal_quality_are_better_and_most_that_are_better_are_found(metric: str) -> None:
    rate = measure(metric, pairs=20, looks=5, problems=200, seed=1)
    assert rate.false_better <= 3 and rate.detected >= 0.5, "3 of 20 or fewer, with 98 % probability at 5 %"


def test_the_recorded_rates_are_of_500_pairs_with_50_looks_and_within_the_budget() -> None:
    results = json.loads(RESULT.read_text())["results"]
    assert [result["metric"] for result in results] == list(METRICS)
    for result in results:
        assert (result["pairs"], result["looks"]) == (500, 50)
        assert result["false_better"] / 500 == result["rate"] <= BUDGET and result["detected"] > 0.5
