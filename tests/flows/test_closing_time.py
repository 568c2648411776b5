"""Tests of the table of times: a run prints it at its end, and the run of the fine-tuning keeps it, reused or not."""

import re

import pytest
from project import Ran, Unchanged

from flows.runtime.outcome import time_table
from tasks.pages import timing
from tasks.tracking import records, store, tags

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("configured"), pytest.mark.thorough]


def table_of(out: str) -> list[str]:
    return [line for line in out[out.index("\ntime of fine_tune ") :].splitlines()[1:] if line.strip()][:9]


def test_the_run_ends_with_a_table_of_stages_speeds_and_shares(first: Ran) -> None:
    head, *lines = table_of(first.out)
    assert head.split() == ["time", "of", "fine_tune", "seconds", "share", "tokens/s"]
    stages = [re.split(r"  +", line.strip())[0] for line in lines]
    assert stages == ["generate", "score", "learn", "hand over", "log", "checkpoint", "all rounds", "start and end"]
    assert re.search(r"GFLOP/s, \d+\.\d% of the machine's peak", lines[2])
    assert re.search(r"peak memory \d\.\d\d GiB", lines[6])


def test_the_fine_tunings_run_has_the_table_the_figure_and_the_numbers(first: Ran) -> None:
    run = first.child("fine_tune")
    lines = timing.from_rows(records.read_table(run.info.run_id, timing.TABLE))
    (whole,) = [line for line in lines if line.stage == timing.TOGETHER]
    assert run.data.metrics["time/rounds"] == pytest.approx(whole.seconds, abs=1e-3)
    assert sum(line.seconds for line in lines[:6]) == pytest.approx(whole.seconds, abs=1e-4)  # rounded values
    assert run.data.metrics["time/peak_share"] > 0 and run.data.metrics["time/machine_gflops"] > 0.1
    assert run.data.tags[records.NOTE].startswith("## Fine-tuning")
    listed = store.client().list_artifacts(run.info.run_id, "plots")
    assert "plots/time.png" in [entry.path for entry in listed]


def test_a_reused_fine_tuning_shows_the_recorded_figures(first: Ran, again: Unchanged) -> None:
    assert again.ran.table["fine_tune"] == "reused"
    maker = again.ran.child("fine_tune").data.tags[tags.REUSED]  # the first run, or one that repeated a lost step
    for ran, run in ((first, first.child("fine_tune").info.run_id), (again.ran, maker)):
        lines = timing.from_rows(records.read_table(run, timing.TABLE))
        assert table_of(ran.out) == time_table(lines).splitlines()
