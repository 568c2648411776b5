"""Settings of a sweep: their cells, and errors."""

from dataclasses import replace

import pytest

from models.agents.strategies.beam import Beam
from models.agents.strategies.vote import Vote
from models.agents.turn_scorer import ScorerSettings
from models.base.errors import UserError
from models.evaluation.sweep import SweepCell
from models.recipes.sweep import BUDGETS, STRATEGIES, read_sweep


def test_a_sweep_is_methods_times_budgets_times_scorers() -> None:
    wanted = [
        "sweep.strategies=[{name: beam, expansions: 2}, vote]",
        "sweep.budgets=[8, 4]",
        "sweep.scorers=[likelihood, {name: process_model, path: some/model}]",
        "evaluation.problems=3",
    ]
    settings, own = read_sweep(wanted)
    process = ScorerSettings(name="process_model", path="some/model")
    cells = dict(settings.cells())
    assert own == ["evaluation.problems=3"]
    assert next(iter(cells)) == SweepCell("plain")
    assert cells[SweepCell("vote", "", 8)] == Vote(drafts=8)
    assert cells[SweepCell("vote", "process_model", 4)] == Vote(drafts=4, scorer=process)
    assert cells[SweepCell("beam", "likelihood", 8)] == Beam(expansions=2, width=4)
    assert cells[SweepCell("beam", "process_model", 4)] == replace(Beam(expansions=2, width=2), scorer=process)
    assert len(cells) == 1 + 2 * 3 + 2 * 2, "the vote also has no scorer"


def test_without_settings_all_methods_of_search_are_compared() -> None:
    settings, _ = read_sweep([])
    methods = {cell.method for cell, _ in settings.cells()}
    assert methods == {"plain", *STRATEGIES}
    assert {cell.budget for cell, _ in settings.cells()} == {1, *BUDGETS}


def test_a_strategy_without_a_budget_is_a_cell_of_its_calls_and_a_scorer_that_it_refuses_is_left_out() -> None:
    settings, _ = read_sweep(
        ["sweep.strategies=[criticise_improve, masked_actions, best_of_n]", "sweep.budgets=[1, 2]"]
    )
    cells = [cell for cell, _ in settings.cells()]
    assert SweepCell("criticise_improve", "", 3) in cells
    assert [cell.scorer for cell in cells if cell.method == "masked_actions"] == [""]
    assert [cell for cell in cells if cell.method == "best_of_n"] == [SweepCell("best_of_n", "likelihood", 2)]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("sweep.budget=[1]", "sweep.budget: unknown key; did you mean budgets?"),
        ("sweep.budgets=[0]", "sweep.budgets.0: Input should be greater than or equal to 1"),
        ("sweep.budgets=[]", "sweep.budgets: List should have at least 1 item"),
        ("sweep.strategies=[vot]", "'vot' is not known; did you mean vote?"),
        ("sweep.strategies=[{name: vote, draft: 3}]", "draft: unknown key; did you mean drafts?"),
        ("sweep.strategies=[vote, vote]", "two cells are called 'vote 2'"),
        ("sweep.scorers=[judg]", "'judg' is not known; did you mean judge?"),
        ("sweep.difficulty=size", "sweep.difficulty: 'size' is not known"),
        ("strategy.drafts=3", r"strategy.drafts: a sweep has several strategies; write sweep.strategies="),
        (f"sweep.budgets={list(range(2, 80))}", "cells, and 200 are the most"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_line(override: str, line: str) -> None:
    with pytest.raises(UserError) as refused:
        read_sweep([override])
    assert line in str(refused.value) and "\n" not in str(refused.value)
