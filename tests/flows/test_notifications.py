"""Notifications of a flow: decisions and failures are sent once, and an unreachable receiver does not stop a flow."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from project import Project

from flows.runtime import notifications
from models.base.errors import UserError
from tasks.messages.outbox import Outbox
from tasks.messages.receivers import URLS
from tests.support.message_listener import TOKEN, Listener


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    listening = Listener()
    monkeypatch.setenv(URLS, listening.receiver.url)
    yield listening
    listening.close()


def decided(decision: str, reused: bool = False) -> Any:
    return SimpleNamespace(decision=decision, version=3, reason="better: +0.1", reused=reused)


def test_decisions_are_told_once_and_that_a_candidate_was_no_better_is_no_news(
    tmp_path: Path, listener: Listener
) -> None:
    for decision in ("promoted", "promoted", "kept", "waiting", "refused"):
        notifications.notify_decision(tmp_path, "tiny-policy", decided(decision), "http://page")
    notifications.notify_decision(tmp_path, "tiny-policy", decided("refused", reused=True), "http://page")
    said = [event["text"] for event in listener.heard]
    assert said == [
        f"tiny-policy version 3 {kind}: better: +0.1 http://page" for kind in ("promoted", "waiting", "refused")
    ]


def test_a_flow_that_stops_is_told_and_one_that_a_person_ended_is_not(tmp_path: Path, listener: Listener) -> None:
    for error in (UserError("no space left"), ValueError("a bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)), notifications.notify_when_stopped(tmp_path, "train tiny") as flow:
            flow.run, flow.link = str(error), "http://page"
            raise error
    assert [event["text"] for event in listener.heard] == [
        "train tiny stopped: no space left http://page",
        "train tiny stopped: ValueError: a bug http://page",
    ]


def test_nothing_hangs_on_a_receiver_that_is_away_or_an_outbox_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = Listener()
    away.close()
    monkeypatch.setenv(URLS, away.receiver.url)
    with caplog.at_level(logging.WARNING):
        notifications.notify(tmp_path, "refused", "x", {"v": 1})
        (tmp_path / "file").touch()
        notifications.notify(tmp_path / "file", "refused", "x", {"v": 1})
        monkeypatch.setenv(URLS, f"ftp://{TOKEN}")
        notifications.notify(tmp_path, "refused", "x", {"v": 1})
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "a message waits",
        "message not sent (x)",
        "message not sent (x)",
    ]
    assert TOKEN not in caplog.text
    assert [state for _, state, _ in Outbox(tmp_path).listed()] == ["waiting"]


def test_a_schedule_sends_what_waits(tmp_path: Path, listener: Listener) -> None:
    listener.status = 503
    notifications.notify(tmp_path, "stopped", "x", {"v": 1})
    listener.status = 200
    with notifications.sending(tmp_path, every=0.05):
        until = time.monotonic() + 30
        while len(listener.heard) < 2 and time.monotonic() < until:
            time.sleep(0.05)
    assert len(listener.heard) == 2 and len(set(listener.ids)) == 1


@pytest.mark.rotating(of=6)
def test_messages_are_listed_and_sent_from_the_command_line(
    project: Project, tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener.status = 503
    notifications.notify(tmp_path, "stopped", "train tiny stopped.", {"v": 1})
    monkeypatch.setattr(Project, "settings", lambda self, home=None: {"REWARDFLOW_HOME": str(home), **_wanted()})
    status, page, error = project.ask("messages", "--send", home=tmp_path)
    assert (status, error) == (1, "error: 127.0.0.1 answered 503\n") and "waiting  127.0.0.1" in page
    listener.status = 200
    status, page, error = project.ask("messages", "--send", home=tmp_path)
    assert (status, error) == (0, "") and "sent     127.0.0.1" in page and page.endswith("1 sent\n")
    assert "train tiny stopped." in page and TOKEN not in page


def _wanted() -> dict[str, str]:
    return {URLS: os.environ[URLS]}
