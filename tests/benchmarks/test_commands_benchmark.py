"""Test of the tracking store that the command-line benchmark lists: its runs are as complete as real ones."""

from pathlib import Path

import pytest

from benchmarks.speed.commands import STEPS, fill
from tasks.tracking import store, summaries


@pytest.mark.rotating(of=6)
def test_the_filled_store_holds_whole_runs_of_which_the_newest_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fill(tmp_path, 5)
    listed = summaries.recent_runs(limit=10)
    assert len({line.run_id for line in listed}) == 5
    assert [line.started for line in listed] == sorted((line.started for line in listed), reverse=True)
    for line in listed:
        summary = summaries.run_summary("", line.run_id)
        assert (len(summary.steps), summary.line.metrics["verdict/number_19"]) == (STEPS, 19.0)
        assert (summary.line.seconds or 0) >= 0
    assert len(store.client().search_runs([entry.experiment_id for entry in store.client().search_experiments()])) == 15
