"""Outbox: every message is delivered at least once and in order, tested with real HTTP receivers on loopback."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.base.errors import UserError
from tasks.messages.event import Event, identity
from tasks.messages.outbox import KEEP, Outbox
from tasks.messages.receivers import URLS, receivers
from tests.support.message_listener import TOKEN, Listener

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def listener() -> Iterator[Listener]:
    listening = Listener()
    yield listening
    listening.close()


def event(number: int) -> Event:
    return Event(
        kind="promoted", text=f"Version {number}.", link="http://x/1", event_id=identity("promoted", {"v": number})
    )


def states(outbox: Outbox) -> list[str]:
    return [state for _, state, _ in outbox.listed()]


def test_an_event_is_delivered_once_with_its_sentence_link_and_id(tmp_path: Path, listener: Listener) -> None:
    outbox, to = Outbox(tmp_path), [listener.receiver]
    assert outbox.put(event(1), to) and not outbox.put(event(1), to)
    assert outbox.deliver(to).sent == 1 and outbox.deliver(to).sent == 0
    assert not outbox.put(event(1), to), "what was sent is known, too"
    assert outbox.deliver(to).sent == 0
    (heard,) = listener.heard
    assert heard["text"] == "Version 1. http://x/1" and heard["kind"] == "promoted" and heard["link"] == "http://x/1"
    assert heard["event_id"] == event(1).event_id and heard["at"].endswith(" UTC")


@pytest.mark.rotating(of=6)
def test_what_a_receiver_that_was_away_missed_comes_later_in_order_with_the_same_ids(tmp_path: Path) -> None:
    away = Listener()
    away.close()
    outbox, to = Outbox(tmp_path), [away.receiver]
    for number in range(5):
        outbox.put(event(number), to)
    passed = outbox.deliver(to)
    assert passed.sent == 0 and passed.failures == ("127.0.0.1 does not answer (Connection refused)",)
    assert states(Outbox(tmp_path)) == ["waiting"] * 5
    back = Listener()
    try:
        (tmp_path / "outbox" / away.receiver.name).rename(tmp_path / "outbox" / back.receiver.name)
        assert outbox.deliver([back.receiver]).sent == 5
        assert back.ids == [event(number).event_id for number in range(5)]
    finally:
        back.close()


@pytest.mark.rotating(of=6)
def test_a_failure_stops_its_own_queue_alone_and_what_never_fits_is_set_aside(
    tmp_path: Path, listener: Listener
) -> None:
    broken = Listener()
    try:
        broken.status = 503
        outbox, to = Outbox(tmp_path), [broken.receiver, listener.receiver]
        for number in range(3):
            outbox.put(event(number), to)
        assert outbox.deliver(to).failures == ("127.0.0.1 answered 503",)
        assert len(broken.heard) == 1 and listener.ids == [event(number).event_id for number in range(3)]
        broken.status = 413
        assert len(outbox.deliver(to).failures) == 3
        assert sorted(states(outbox)) == ["refused"] * 3 + ["sent"] * 3
    finally:
        broken.close()


def test_a_redirect_is_not_followed(tmp_path: Path, listener: Listener) -> None:
    listener.status = 302
    outbox = Outbox(tmp_path)
    outbox.put(event(1), [listener.receiver])
    assert outbox.deliver([listener.receiver]).failures == ("127.0.0.1 answered 302",)
    assert states(outbox) == ["waiting"]


@pytest.mark.rotating(of=6)
def test_a_receiver_that_hangs_holds_up_a_pass_no_longer_than_it_may_take(tmp_path: Path, listener: Listener) -> None:
    listener.delay = 30
    outbox = Outbox(tmp_path)
    outbox.put(event(1), [listener.receiver])
    began = time.monotonic()
    (said,) = outbox.deliver([listener.receiver], seconds=0.5).failures
    assert time.monotonic() - began < 10 and said.startswith("127.0.0.1 does not answer (")
    assert states(outbox) == ["waiting"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tasks.messages import outbox as box
from tasks.messages.event import Event
from tasks.messages.receivers import Receiver
to = [Receiver(sys.argv[2])]
outbox = box.Outbox(Path(sys.argv[1]))
outbox.put(Event(kind="promoted", text="Version 1.", event_id="one"), to)
if sys.argv[3] == "before the answer is noted":
    box._move = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    outbox.deliver(to)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "heard"), [("before it is sent", 1), ("before the answer is noted", 2)])
def test_who_was_killed_has_told_it_at_least_once_with_one_id(
    tmp_path: Path, listener: Listener, when: str, heard: int
) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), listener.receiver.url, when]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == -signal.SIGKILL
    assert Outbox(tmp_path).deliver([listener.receiver]).sent == 1
    assert listener.ids == ["one"] * heard


def test_many_processes_that_tell_at_once_lose_nothing_and_send_nothing_twice(
    tmp_path: Path, listener: Listener
) -> None:
    threads = [
        threading.Thread(target=lambda number=number: Outbox(tmp_path).put(event(number), [listener.receiver]))
        for number in range(20)
    ]
    threads += [threading.Thread(target=lambda: Outbox(tmp_path).deliver([listener.receiver])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    Outbox(tmp_path).deliver([listener.receiver])
    assert sorted(listener.ids) == sorted(event(number).event_id for number in range(20))


def test_what_was_taken_long_ago_is_forgotten_and_what_waits_never(tmp_path: Path, listener: Listener) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(event(1), [listener.receiver])
    outbox.deliver([listener.receiver])
    listener.status = 500
    outbox.put(event(2), [listener.receiver])
    for path in (tmp_path / "outbox").rglob("*.json"):
        os.utime(path, (0, time.time() - KEEP - 60))
    outbox.deliver([listener.receiver])
    assert states(outbox) == ["waiting"]


def test_addresses_come_from_the_environment_and_no_token_is_ever_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URLS, raising=False)
    assert receivers() == []
    url = f"http://127.0.0.1:9/{TOKEN}?key={TOKEN}"
    monkeypatch.setenv(URLS, f"{url} {url}  https://hooks.example/{TOKEN}")
    named = receivers()
    assert [receiver.host for receiver in named] == ["127.0.0.1", "hooks.example"]
    outbox = Outbox(tmp_path)
    outbox.put(event(1), named[:1])
    assert TOKEN not in str(outbox.deliver(named[:1]).failures) + repr(named)
    for path in tmp_path.rglob("*"):
        assert TOKEN not in str(path) and (path.is_dir() or TOKEN not in path.read_text())
    for wrong in (f"ftp://x/{TOKEN}", f"http:///{TOKEN}", TOKEN, f"http://[x/{TOKEN}"):
        monkeypatch.setenv(URLS, f"http://fine {wrong}")
        with pytest.raises(UserError, match=f"^{URLS}: address 2 must begin with http") as error:
            receivers()
        assert TOKEN not in str(error.value)
