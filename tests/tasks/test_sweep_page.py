"""The tables, the JSON and the plot of a sweep."""

import json

import numpy as np

from models.evaluation.sweep import CellResult, SweepCell, choose
from tasks.pages.plots import accuracy_by_tokens
from tasks.pages.sweep_page import Sweep, as_json, cell_rows, choice_rows, panels

BINS = ("hard", "easy") * 20
IDS = tuple(f"p{number}" for number in range(40))
PLAIN = CellResult(SweepCell("plain"), np.array([0.0, 1.0] * 20), 10.0, 0.0, 0.001)
BEST = CellResult(SweepCell("best_of_n", "judge", 4), np.ones(40), 40.0, 55.0, 0.02)
SWEEP = Sweep((PLAIN, BEST), BINS, (choose((PLAIN, BEST), BINS, IDS, 4),))


def test_a_row_of_a_cell_has_its_accuracy_by_difficulty_and_its_cost() -> None:
    plain, best = cell_rows(SWEEP)
    assert list(plain) == ["cell", "accuracy", "easy", "hard", "tokens", "scored", "milliseconds"]
    assert (plain["cell"], plain["easy"], plain["hard"], plain["tokens"]) == ("plain", "100.0", "0.0", "10.0")
    assert plain["accuracy"].startswith("50.0 [") and best["accuracy"] == "100.0 [100.0, 100.0]"
    assert (best["cell"], best["scored"], best["milliseconds"]) == ("best_of_n 4 by judge", "55.0", "20.00")


def test_a_row_of_a_budget_has_the_chosen_cells_and_the_gains() -> None:
    (row,) = choice_rows(SWEEP)
    assert (row["budget"], row["easy"]) == ("4", "plain"), "equal on easy problems, and cheaper"
    assert row["hard"] == "best_of_n 4 by judge" and row["accuracy"] == "100.0 [100.0, 100.0]"
    assert row["over plain"].startswith("+")
    assert row["over the single best"] == "no gain shown: +0.0 [+0.0, +0.0] (best_of_n 4 by judge)"


def test_the_json_has_every_cell_and_choice_with_intervals() -> None:
    body = json.loads(as_json(SWEEP))
    assert body["problems"] == {"easy": 20, "hard": 20}
    plain, best = body["cells"]
    assert plain["accuracy"]["hard"] == {"estimate": 0.0, "interval": [0.0, 0.0]}
    assert (best["method"], best["scorer"], best["budget"], best["tokens_scored"]) == ("best_of_n", "judge", 4, 55.0)
    (choice,) = body["choices"]
    low, high = choice["over_plain"]["interval"]
    assert low <= choice["over_plain"]["estimate"] <= high and choice["cells"]["easy"] == "plain"


def test_the_plot_has_a_panel_for_each_difficulty_and_a_line_for_each_method() -> None:
    figure = accuracy_by_tokens(panels(SWEEP))
    titles = [axis.get_title(loc="left") or axis.get_title() for axis in figure.axes if axis.get_visible()]
    assert titles == ["all", "easy", "hard"]
    legend = figure.axes[0].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["plain", "best_of_n by judge"]
