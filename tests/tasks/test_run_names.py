"""Names of runs: each states the outcome of its run."""

import pytest

from models.evaluation.bootstrap import Interval
from tasks.pages import run_names
from tasks.tracking.verdict_record import Ruling
from tests.support.verdict_examples import verdict


@pytest.mark.parametrize(
    ("decision", "name"),
    [
        ("promoted", "v7 promoted +3.9 [+3.6, +4.2]"),
        ("kept", "v7 not better +3.9 [+3.6, +4.2]"),
        ("refused", "v7 refused +3.9 [+3.6, +4.2]"),
        ("waiting", "v7 waits for approval +3.9 [+3.6, +4.2]"),
    ],
)
def test_a_judged_run_is_called_by_version_decision_and_difference_in_points(decision: str, name: str) -> None:
    assert run_names.judged(7, verdict(decision=decision)) == name


def test_a_ruling_replaces_the_decision_in_the_name() -> None:
    ruling = Ruling(approved=True, by="Ann", why="read", at="2026-11-24 10:00 UTC")
    assert run_names.judged(7, verdict(ruling=ruling)).startswith("v7 approved +3.9")
    rejected = verdict(decision="refused", ruling=ruling.model_copy(update={"approved": False}))
    assert run_names.judged(7, rejected).startswith("v7 rejected +3.9")


def test_a_metric_that_is_no_share_keeps_its_unit() -> None:
    record = verdict(decision="kept", metric="tokens", difference=Interval(-1.5, -2.0, -1.0))
    assert run_names.judged(2, record).endswith("-1.500 [-2.000, -1.000]")


def test_a_run_that_changed_nothing_does_not_say_promoted() -> None:
    assert run_names.unchanged(7, is_champion=True) == "nothing changed: v7, the champion"
    assert "promoted" not in run_names.unchanged(7, is_champion=False)


def test_a_comparison_is_called_by_the_best_method_and_its_interval() -> None:
    middle = Interval(0.31, 0.28, 0.34)
    assert run_names.compared("grpo", 5, middle, "sampled_accuracy") == (
        "grpo before 5 others: sampled_accuracy 31.0 [28.0, 34.0]"
    )
    assert run_names.compared("grpo", 1, middle, "tokens") == "grpo before 1 other: tokens 0.310 [0.280, 0.340]"


def test_a_stopped_run_says_why_in_one_short_line() -> None:
    name = run_names.stopped("data: a line\nand  more " + "x" * 500, killed=False)
    assert name.startswith("stopped: data: a line and more xxx") and len(name) <= run_names.LONGEST
    assert run_names.stopped("anything", killed=True) == "interrupted"
