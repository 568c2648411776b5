"""Tests of what is printed on the terminal: the lines of the steps, warnings, and each error once."""

import logging
from pathlib import Path

import prefect
import pytest

from flows.runtime.console import News, _WithoutTraceback
from models.base.errors import UserError
from tasks.runner import interrupt

ENGINE = str(Path(prefect.__file__).parent / "flow_engine.py")
OURS = str(Path(__file__).resolve().parents[2] / "tasks" / "evaluate.py")


def shown(
    text: str, level: int = logging.INFO, file: str = ENGINE, error: Exception | None = None, reported: bool = True
):
    """Return whether a record of Prefect's loggers reaches the terminal."""
    trace = (type(error), error, None) if error else None
    record = logging.LogRecord("prefect.flow_runs", level, file, 1, text, (), trace)
    _WithoutTraceback().filter(record)
    return News(reported).filter(record)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("Beginning flow run 'train tiny' for flow 'train'", logging.INFO),
        ("Finished in state Completed()", logging.INFO),
        ("Finished in state Failed('no such column')", logging.ERROR),
        ("Starting temporary server on http://127.0.0.1:8488", logging.INFO),
    ],
)
def test_what_prefect_says_of_its_own_states_is_not_shown(text: str, level: int) -> None:
    assert not shown(text, level)


def test_what_a_step_says_is_shown() -> None:
    assert shown("evaluation of the base: sampled 12.0%", file=OURS)
    assert shown("going on without", logging.WARNING, file=OURS)


def test_a_user_error_that_the_command_prints_is_not_logged_beside_it() -> None:
    assert not shown("Encountered exception during execution", logging.ERROR, error=UserError("no such column"))
    assert shown("Encountered exception during execution", logging.ERROR, error=UserError("no"), reported=False)


def test_any_other_error_is_shown() -> None:
    assert shown("Encountered exception during execution", logging.ERROR, error=RuntimeError("a bug"))


def test_after_an_interrupt_nothing_of_prefect_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown("Crash detected! Execution was aborted", logging.ERROR)
    monkeypatch.setattr(interrupt, "received_signal", lambda: interrupt.signal.SIGINT)
    assert not shown("Crash detected! Execution was aborted", logging.ERROR)
