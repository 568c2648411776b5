"""A run in which no round changed the weights is reported, with the reasons."""

import pytest

from models.training.learned import nothing_learned

LEARNED = {"policy/gradient_norm": 0.3, "policy/learning_rate": 1e-4, "rollouts/trained_share": 0.5, "reward/spread": 1}
EMPTY = {"policy/learning_rate": 1e-4, "rollouts/trained_share": 0.0, "reward/spread": 0.0}


def test_one_round_with_a_gradient_that_moved_the_weights_is_learning() -> None:
    assert nothing_learned([EMPTY, LEARNED, EMPTY], 1e-9) == ""


def test_rounds_that_leave_nothing_to_learn_from_are_told_with_their_count() -> None:
    said = nothing_learned([EMPTY, EMPTY], 0.0)
    assert said == (
        "no round changed the weights: of 2 rounds, no completion was left to learn from in 2 of them; "
        "all rewards were equal in 2 of them"
    )


def test_a_gradient_of_exactly_zero_is_no_learning_though_weight_decay_moved_the_weights() -> None:
    flat = LEARNED | {"policy/gradient_norm": 0.0, "reward/spread": 0.0}
    assert "all rewards were equal in 3 of them" in nothing_learned([flat] * 3, 1.0)


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (LEARNED | {"policy/learning_rate": 0.0}, "the learning rate was 0 in 1 of them"),
        (LEARNED, "gradients of 1 of them were too small to change a stored weight"),
        ({}, "no completion was left to learn from in 1 of them"),
    ],
)
def test_weights_that_are_what_they_were_are_no_learning(metrics: dict[str, float], why: str) -> None:
    said = nothing_learned([metrics], 0.0)
    assert said.startswith("no round changed the weights: of 1 rounds, ") and why in said


def test_a_run_without_rounds_learned_nothing() -> None:
    assert nothing_learned([], 0.0).endswith("of 0 rounds, none had a gradient")
