"""Progress display: a terminal shows the current stage; a log file gets a line from time to time, and no bars."""

import io
import sys

import pytest

from tasks.runner.progress import progress, stages


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_stage_that_is_worked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with stages("evaluate base", ("engine", "samples", "greedy")) as begin:
        seen = []
        for name in ("engine", "samples", "greedy"):
            begin(name)
            seen.append(terminal.getvalue().rpartition("\r")[2])
    for done, (name, line) in enumerate(zip(("engine", "samples", "greedy"), seen, strict=True)):
        assert line.startswith("evaluate base:") and f"{done}/3" in line and name in line


def test_a_file_gets_no_bars(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stderr", file := io.StringIO())
    with stages("evaluate base", ("samples",)) as begin:
        begin("samples")
    with progress("fine-tune", 3, ("reward/total",)) as advance:
        advance(1, {"reward/total": 0.5})
    assert file.getvalue() == "" and capsys.readouterr().out == ""


def test_a_file_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("fine-tune", 3, ("reward/total",), every_seconds=0.0) as advance:
        advance(2, {"reward/total": 0.5, "loss": 1.0})
    assert capsys.readouterr().out == "  fine-tune: 2/3  total 0.500\n"
