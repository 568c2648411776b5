"""The table of time: seconds are summed over the rounds, and each speed is a mean over the seconds of its stage."""

import pytest

from flows.runtime.outcome import time_table
from models.training.clock import STAGES
from tasks.pages import description, timing
from tasks.pages.timing import HIDDEN, TOGETHER, TimeLine, time_lines
from tasks.tracking.journal import JournalRow


def round_of(step: int, **changes: float) -> JournalRow:
    """Return a round of ten seconds: 4 of generation at 100 tokens a second, 5 of learning at a tenth of the peak."""
    seconds = dict.fromkeys((f"seconds/{stage}" for stage in STAGES), 0.0)
    seconds |= {"seconds/generate": 4.0, "seconds/learn": 5.0, "seconds/hand_over": 1.0, "seconds/round": 10.0}
    speeds = {"speed/generate": 100.0, "speed/learn": 60.0, "speed/round": 40.0}
    speeds |= {"speed/learn_gflops": 30.0, "speed/peak_share": 0.1, "memory/peak_gib": 1.5}
    return JournalRow(step, 0, {"reward/total": 0.5, **seconds, **speeds, **changes})


def line(lines: list[TimeLine], stage: str) -> TimeLine:
    (entry,) = [entry for entry in lines if entry.stage == stage]
    return entry


def test_seconds_add_up_and_shares_are_of_all_rounds() -> None:
    lines = time_lines([round_of(1), round_of(2)], outside=5.0)
    assert [entry.stage for entry in lines] == [
        *("generate", "score", "learn", "hand over", "log", "checkpoint"), TOGETHER, "start and end",
    ]  # fmt: skip
    assert (line(lines, "generate").seconds, line(lines, "generate").share) == (8.0, 0.4)
    assert (line(lines, TOGETHER).seconds, line(lines, TOGETHER).tokens_per_second) == (20.0, 40.0)
    assert sum(entry.share or 0.0 for entry in lines[:6]) == pytest.approx(1.0)
    assert line(lines, "score").tokens_per_second is None
    assert (line(lines, "start and end").seconds, line(lines, "start and end").share) == (5.0, None)


def test_a_speed_is_the_mean_over_the_seconds_and_not_over_the_rounds() -> None:
    fast = {"seconds/learn": 1.0, "speed/learn": 600.0, "speed/learn_gflops": 90.0, "speed/peak_share": 0.3}
    learn = line(time_lines([round_of(1), round_of(2, **fast)]), "learn")
    assert learn.tokens_per_second == pytest.approx((5 * 60 + 600) / 6)
    assert learn.gflops == pytest.approx((5 * 30 + 90) / 6) and learn.peak_share == pytest.approx((0.5 + 0.3) / 6)


def test_a_round_that_trained_on_nothing_lowers_no_speed() -> None:
    idle = round_of(2, **{"seconds/learn": 0.0})
    for key in ("speed/learn", "speed/learn_gflops", "speed/peak_share"):
        del idle.metrics[key]
    assert line(time_lines([round_of(1), idle]), "learn").tokens_per_second == 60.0


def test_what_was_hidden_behind_learning_is_taken_off() -> None:
    overlapped = [round_of(step, **{"seconds/hidden": 3.0, "seconds/round": 7.0}) for step in (1, 2)]
    lines = time_lines(overlapped)
    assert line(lines, HIDDEN).seconds == -6.0
    assert sum(entry.share or 0.0 for entry in lines[:7]) == pytest.approx(1.0)


def test_the_most_memory_of_any_round_is_told() -> None:
    lines = time_lines([round_of(1, **{"memory/peak_gib": 2.25}), round_of(2)])
    assert line(lines, TOGETHER).peak_gib == 2.25
    assert timing.time_metrics(lines) == {
        "time/rounds": 20.0, "time/tokens_per_second": 40.0, "time/peak_gib": 2.25,
        "time/peak_share": pytest.approx(0.1), "time/machine_gflops": pytest.approx(300.0),
    }  # fmt: skip


def test_a_journal_without_times_makes_no_table() -> None:
    assert time_lines([JournalRow(1, 0, {"reward/total": 1.0})]) == []
    assert description.time_table([]) == "" and timing.time_metrics([]) == {}


def test_the_table_survives_its_artifact() -> None:
    lines = time_lines([round_of(1)])
    assert timing.from_rows(timing.table_rows(lines)) == lines


def test_on_the_terminal_and_on_the_page_stand_the_same_numbers() -> None:
    lines = time_lines([round_of(1)], outside=2.0)
    shown = time_table(lines).splitlines()
    assert shown[3].split() == [
        "learn",
        "5.0",
        "50.0%",
        "60",
        *"30 of 300 GFLOP/s, 10.0% of the machine's peak".split(),
    ]
    assert "peak memory 1.50 GiB" in shown[7]
    page = description.time_table(lines)
    assert "10.0% of the machine's peak" in page and "peak memory 1.50 GiB" in page and "| learn&emsp; |" in page


def test_the_slowest_stage_is_the_bottleneck_without_the_time_that_is_hidden() -> None:
    lines = time_lines([round_of(1), round_of(2)])
    assert timing.bottleneck(lines).startswith("learn takes 50.0% of the rounds: 10.0 of 20.0 s, ")
    ahead = [
        TimeLine("generate", 60.0, 0.6, 100.0),
        TimeLine("learn", 50.0, 0.5, 300.0),
        TimeLine(HIDDEN, -20.0, -0.2),
        TimeLine(TOGETHER, 100.0, 1.0),
    ]
    assert timing.bottleneck(ahead) == "learn takes 50.0% of the rounds: 50.0 of 100.0 s, 300 tokens/s"
    assert timing.bottleneck([]) == ""
