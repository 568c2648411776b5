"""Tests of the measure of the claim about novelty: coverage at equal success by hand, and what its arms differ in."""

from __future__ import annotations

from typing import Any

from benchmarks.claims.curiosity_trials import CURIOUS, PLAIN, covered_at
from benchmarks.claims.toy import recipe_of
from models.recipes.load import plain


def test_coverage_is_read_in_the_last_round_with_at_most_as_many_successes() -> None:
    counts, covered = [2.0, 10.0, 10.0, 31.0], [1.0, 3.0, 3.0, 9.0]
    assert [covered_at(count, counts, covered) for count in (1, 2, 9, 30, 31, 99)] == [0.0, 1.0, 1.0, 3.0, 9.0, 9.0]


def test_the_arms_differ_in_the_weight_of_novelty_alone() -> None:
    curious, other = (plain(recipe_of(arm, 0, 2)) for arm in (CURIOUS, PLAIN))
    rewards: list[dict[str, Any]] = curious["rewards"]
    assert [reward["name"] for reward in rewards] == ["provoked", "novelty"] and rewards[1]["weight"] == 1.0
    rewards[1]["weight"] = 0.0
    assert curious == other
