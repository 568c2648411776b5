"""Warnings after the first rounds name the settings because of which nothing is learned."""

import pytest

from models.recipes.load import load_recipe
from models.training.first_rounds import warnings_of

GOOD = {"rollouts/cut_share": 0.1, "rollouts/flat_share": 0.4, "reward/total": 0.3}
FLAT = GOOD | {"rollouts/flat_share": 1.0, "reward/total": 0.0}
CUT = GOOD | {"rollouts/cut_share": 0.81}


def lines(rounds: list[dict[str, float]], recipe: str = "gsm8k", *overrides: str) -> list[str]:
    return warnings_of(rounds, load_recipe(recipe, list(overrides)).slots)


@pytest.mark.parametrize("rounds", [[GOOD, GOOD], [FLAT, GOOD], [GOOD, FLAT], [CUT, GOOD], [FLAT, CUT], [{}, {}]])
def test_what_does_not_hold_in_both_rounds_is_no_warning(rounds: list[dict[str, float]]) -> None:
    assert lines(rounds) == []


@pytest.mark.parametrize("limit", [40, 300])
def test_completions_that_are_cut_name_the_limit(limit: int) -> None:
    (line,) = lines([CUT, CUT | {"rollouts/cut_share": 0.61}], "gsm8k", f"rollouts.max_tokens={limit}")
    assert "\n" not in line and line.startswith("71% of the completions of the first 2 rounds were cut")
    assert f"raise rollouts.max_tokens ({limit} now)" in line


def test_flat_groups_name_data_and_temperature() -> None:
    (line,) = lines([FLAT, FLAT | {"reward/total": 1.0}], "gsm8k", "rollouts.temperature=0.7")
    assert "\n" not in line and "mean rewards 0 and 1" in line
    assert "easier data" in line and "raise rollouts.temperature (0.7 now)" in line


def test_rounds_without_a_selected_completion_are_warned_of_although_their_total_rewards_spread() -> None:
    """The recipe `grpo` selects by the verifier, while the reward model gives every completion another reward."""
    rounds = [{"reward/total": 0.1, "rollouts/flat_share": 0.0, "rollouts/trained_share": 0.0}] * 2
    (line,) = lines(rounds, "grpo")
    assert "no completion was selected (select drop_flat) (mean rewards 0.1 and 0.1)" in line
    assert lines([rounds[0], rounds[1] | {"rollouts/trained_share": 0.5}], "grpo") == []


def test_both_at_once_are_two_lines() -> None:
    assert len(lines([FLAT | CUT | {"rollouts/flat_share": 1.0}] * 2)) == 2


def test_a_method_that_learns_from_flat_groups_is_not_warned_of_them() -> None:
    assert load_recipe("ppo").slots.advantage.learns_from_flat_groups
    assert lines([FLAT, FLAT], "ppo") == []


def test_completions_of_the_data_are_not_warned_of() -> None:
    assert not load_recipe("dpo").slots.rollouts.draws
    assert lines([FLAT | CUT | {"rollouts/flat_share": 1.0}] * 2, "dpo") == []
