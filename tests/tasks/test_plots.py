"""Figures: every kind of metric in the data has a chart, and missing metrics leave no empty chart."""

import io

import pytest

from models.evaluation.aggregate import profiles
from models.evaluation.bootstrap import Interval
from models.reward_models.calibration import ReliabilityBin
from models.training.clock import STAGES
from tasks.pages import plots
from tasks.tracking.journal import JournalRow


def drawn(figure) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=50)
    return target.getvalue()


def shown(figure) -> list:
    return [axis for axis in figure.axes if axis.get_visible()]


def test_training_has_a_chart_for_each_kind_of_metric_that_was_logged_and_no_other():
    rows = [
        JournalRow(step, 0, {"reward/mean": step / 9, "reward/verifier": 0.1, "policy/kl": 0.01 * step})
        for step in range(9)
    ]
    figure = plots.training_curves(rows)
    assert [axis.get_title(loc="left") for axis in shown(figure)] == ["Reward", "KL to the reference (nats)"]
    reward = shown(figure)[0]
    assert [text.get_text() for text in reward.get_legend().get_texts()] == ["mean", "verifier"]
    assert list(reward.get_lines()[0].get_ydata()) == [step / 9 for step in range(9)]
    assert drawn(figure).startswith(b"\x89PNG")


def test_rows_out_of_order_make_the_same_curve():
    rows = [JournalRow(step, 0, {"loss/kl": float(step)}) for step in range(9)]
    lines = [plots.training_curves(order).axes[0].get_lines()[0].get_xydata().tolist() for order in (rows, rows[::-1])]
    assert lines[0] == lines[1]


def test_a_journal_without_metrics_says_so():
    figure = plots.training_curves([])
    assert [text.get_text() for text in figure.axes[0].texts] == ["no metrics in the journal"]
    drawn(figure)


def test_every_model_and_level_has_its_bar_with_its_interval():
    levels = {1: Interval(0.9, 0.85, 0.95), 5: Interval(0.1, 0.05, 0.2)}
    figure = plots.accuracy_by_level({"base": levels, "champion": levels, "candidate": {1: levels[1]}})
    (axis,) = figure.axes
    assert sorted(round(bar.get_height(), 3) for bar in axis.patches) == [0.1, 0.1, 0.9, 0.9, 0.9]
    assert [label.get_text() for label in axis.get_xticklabels()] == ["level 1", "level 5"]
    assert len({bar.get_facecolor() for bar in axis.patches}) == 3
    drawn(figure)


@pytest.mark.parametrize("count", [0, 1, 10])
def test_a_reliability_curve_is_drawn_from_any_number_of_bins(count: int):
    bins = [ReliabilityBin(0.5 + n / 20, 0.55 + n / 20, n + 1, 0.52 + n / 20, 0.5 + n / 20) for n in range(count)]
    figure = plots.reliability(bins, 0.0314)
    assert figure.axes[0].get_title(loc="left").endswith("ECE 0.031")
    assert sum(bar.get_height() for bar in figure.axes[1].patches) == sum(range(1, count + 1))
    drawn(figure)


def test_divergence_has_an_axis_of_its_own_for_each_unit():
    figure = plots.divergence([0, 1, 2], [5.0, 6.0, 7.0], [0.3, 0.2, 0.1])
    truth, score = figure.axes
    assert list(truth.get_lines()[0].get_ydata()) == [0.3, 0.2, 0.1]
    assert list(score.get_lines()[0].get_ydata()) == [5.0, 6.0, 7.0]
    drawn(figure)


@pytest.mark.parametrize("rounds", [1, 7, 150])
def test_the_stretches_of_a_round_stand_on_each_other_and_reach_its_length(rounds: int):
    stretches = {f"seconds/{stage}": share for stage, share in zip(STAGES, (4, 1, 3, 1, 0.5, 0.5), strict=True)}
    rows = [JournalRow(step, 0, {**stretches, "seconds/round": 10.0}) for step in range(1, rounds + 1)]
    (axis,) = plots.time_by_round(rows).axes
    tops = [bar.get_y() + bar.get_height() for bar in axis.patches]
    assert max(tops) == pytest.approx(10.0)
    assert len(axis.patches) == 6 * min(rounds, 50) and len(axis.get_lines()) == 0
    drawn(plots.time_by_round(rows))


def test_where_stretches_ran_beside_each_other_the_time_that_passed_is_drawn_too():
    rows = [
        JournalRow(1, 0, {"seconds/generate": 4.0, "seconds/learn": 5.0, "seconds/hidden": 3.0, "seconds/round": 6.0})
    ]
    (axis,) = plots.time_by_round(rows).axes
    assert list(axis.get_lines()[0].get_ydata()) == [6.0]
    drawn(plots.time_by_round([]))


def test_a_profile_is_drawn_with_its_band_for_each_method():
    figure = plots.performance_profiles(profiles({"grpo": [0.2, 0.4, 0.6], "rloo": [0.1, 0.3, 0.3]}), "pass_at_4")
    (axis,) = figure.axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["grpo", "rloo"]
    assert len(axis.get_lines()) == len(axis.collections) == 2 and axis.get_xlabel() == "pass at 4"
    drawn(figure)
