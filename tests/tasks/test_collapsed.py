"""Collapsed policies: the gate refuses them and states the reason, and the command has an exit status of its own."""

import pytest
import typer

from flows.cli.run import run
from flows.train import TrainFlowResult
from models.evaluation.bootstrap import Interval
from models.evaluation.gate.budget import next_look
from models.evaluation.gate.gate import GateSettings, Verdict
from models.method.alarm import Collapse
from tasks.gate.judgement import decide
from tasks.tracking.verdict_text import reason_text

LOST = str(Collapse(8, ("reward/total 0.01 where it began at 0.18",), kept=5))
BETTER = Verdict(
    promoted=True,
    difference=Interval(0.05, 0.03, 0.07),
    checks=(),
    look=next_look(0, 0.0, budget=0.05, looks=365),
    detectable=0.02,
)


def test_the_best_checkpoint_of_a_collapsed_run_is_refused_though_it_is_better():
    assert decide(BETTER, GateSettings(), None).decision == "promoted"
    record = decide(BETTER, GateSettings(), None, failed_training=LOST)
    assert (record.decision, record.reason) == ("refused", "training_failed")
    assert "collapsed by round 8" in reason_text(record) and "after round 5" in reason_text(record)


@pytest.mark.parametrize(("collapsed", "status"), [("", None), (LOST, 3)])
def test_a_collapsed_run_ends_with_a_status_of_its_own(collapsed, status, monkeypatch, capsys):
    monkeypatch.setattr("flows.train.train", lambda *given: TrainFlowResult("abc", collapsed=collapsed))
    monkeypatch.setattr("flows.servers.temporary_server.start", lambda home: lambda: None)
    monkeypatch.setattr("flows.runtime.outcome.closing_lines", lambda outcome, home: "the end")
    if status is None:
        run("arithmetic")
    else:
        with pytest.raises(typer.Exit) as ended:
            run("arithmetic")
        assert ended.value.exit_code == status
    assert "the end" in capsys.readouterr().out
