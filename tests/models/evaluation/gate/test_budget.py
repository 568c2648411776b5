"""The error budget of the gate: all looks together spend no more than it, even if the settings change."""

import itertools

import pytest

from models.evaluation.gate.budget import Look, next_look


def looks(number: int, budget: float = 0.05, of: int = 365) -> list[Look]:
    measured, looked, spent = [], 0, 0.0
    for _ in range(number):
        measured.append(next_look(looked, spent, budget=budget, looks=of))
        looked, spent = measured[-1].number, measured[-1].spent
    return measured


def test_all_looks_together_spend_the_budget_and_no_more() -> None:
    year = looks(365)
    assert sum(look.alpha for look in year) == pytest.approx(0.05)
    assert year[-1].left == pytest.approx(0.0, abs=1e-12)
    assert all(first.alpha > two.alpha > 0 for first, two in itertools.pairwise(year))


def test_after_a_quarter_of_the_looks_half_of_the_budget_is_spent() -> None:
    assert looks(100, of=400)[-1].spent == pytest.approx(0.025)


def test_after_the_last_look_nothing_is_left() -> None:
    assert looks(366)[-1].alpha == 0.0 and looks(366)[-1].number == 366


def test_settings_that_are_made_larger_on_the_way_spend_no_more_than_their_budget() -> None:
    spent = looks(100, of=100)[-1].spent
    assert next_look(100, spent, budget=0.05, looks=1000).alpha == pytest.approx(0.0, abs=1e-12)
    assert next_look(0, 0.049, budget=0.05, looks=1).alpha == pytest.approx(0.001)


def test_a_look_says_its_number_its_level_and_what_is_left() -> None:
    said = str(looks(3)[-1])
    assert said.startswith("look 3 of 365") and "is spent" in said and "is left" in said
