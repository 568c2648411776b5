"""Tests of a comparison in which a training did not learn: it names the training and ends with status 3."""

from types import SimpleNamespace

import pytest
import typer

from flows.cli.compare import compare
from flows.compare import not_learned
from flows.runtime.outcome import comparison_lines
from models.evaluation.aggregate import standings
from models.method.alarm import Collapse
from tasks.pages.comparison import TrainingCost
from tasks.runner.step import StepResult
from tasks.steps.fine_tune import COLLAPSED, UNCHANGED

LOST = str(Collapse(8, ("reward/total 0.01 where it began at 0.18",), kept=5))
STANDING = standings({"grpo": [0.3, 0.3], "topr": [0.0, 0.2]})
COSTS = [TrainingCost(8, 64, 8, 1.0, 100.0)] * 2


def trained(**links: str) -> SimpleNamespace:
    """Return a training whose fine-tuning recorded these links."""
    made = StepResult(
        step="fine_tune", key="k", folder="", digest="d", headline="", metrics={}, run_id="", seconds=0.0, links=links
    )
    return SimpleNamespace(tuned=made)


def test_of_every_training_that_was_lost_method_seed_and_reason_are_told():
    done = [trained(), trained(**{COLLAPSED: LOST}), trained(**{UNCHANGED: "no round changed the weights"})]
    assert not_learned("topr", done) == [  # type: ignore[arg-type]
        f"topr, seed 1: {LOST}",
        "topr, seed 2: no round changed the weights",
    ]
    assert not_learned("grpo", done[:1]) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(("lost", "status"), [([], None), ([f"topr, seed 0: {LOST}"], 3)])
def test_a_comparison_with_a_lost_training_ends_with_the_status_of_such_a_run(
    lost, status, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path))
    monkeypatch.setattr("flows.compare.compare", lambda *given: ("abc", STANDING, COSTS, lost))
    monkeypatch.setattr("flows.servers.temporary_server.start", lambda home: lambda: None)
    monkeypatch.setattr("flows.runtime.outcome._where", lambda run_id, home: ["run  abc"])
    if status is None:
        compare(["grpo", "topr"], seeds=2, budget=None, metric="sampled_accuracy", overrides=None, smoke=True)
    else:
        with pytest.raises(typer.Exit) as ended:
            compare(["grpo", "topr"], seeds=2, budget=None, metric="sampled_accuracy", overrides=None, smoke=True)
        assert ended.value.exit_code == status
    said = capsys.readouterr().out
    assert "topr" in said and said.count("not learned") == len(lost)
    assert all(f"not learned  {line}" in said.splitlines() for line in lost)


def test_the_table_of_a_comparison_without_a_loss_has_no_such_line(tmp_path, monkeypatch):
    monkeypatch.setattr("flows.runtime.outcome._where", lambda run_id, home: [])
    assert "not learned" not in comparison_lines("abc", STANDING, COSTS, [], "sampled_accuracy", tmp_path)
