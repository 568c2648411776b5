"""Approval by a tag on MLflow's page: it is carried out once; if it cannot be, a tag on the page gives the reason."""

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from nights import champion, nights
from test_gate_promotion import NAME

from flows.schedule.approvals import PATH, check_registry, receive_deliveries
from models.base.errors import UserError
from tasks.gate import approval, approval_by_tag
from tasks.gate.approval_by_tag import TaggedDecision, apply_decisions, word_of
from tasks.steps.promote import Promotion
from tasks.tracking import aliases, audit, registry, store, tags, webhooks
from tasks.tracking.verdict_record import read_verdict

pytestmark = pytest.mark.rotating(of=6)

PAGE = "Ann, on MLflow's page"


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path) -> Callable[..., Promotion]:
    return nights(home, policy_folder, tmp_path)


def write(key: str, value: str, version: int = 2) -> None:
    """Set a tag of a version, as the page does."""
    store.client().set_model_version_tag(NAME, str(version), key, value)


def shown(version: int = 2) -> dict[str, str]:
    return dict(registry.version_info(NAME, version).tags)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"approve": "Ann: samples read"}, TaggedDecision("approve", "Ann", "samples read")),
        (
            {"reject": " Bob :  see http://a/b: wrong language "},
            TaggedDecision("reject", "Bob", "see http://a/b: wrong language"),
        ),
    ],
)
def test_a_word_is_a_name_and_a_reason(written: dict[str, str], meant: TaggedDecision) -> None:
    assert word_of(written) == meant


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ({"approve": "yes"}, "no name or no reason"),
        ({"approve": ": because"}, "no name or no reason"),
        ({"reject": "Bob:  "}, "no name or no reason"),
        ({"approve": "Ann: a", "reject": "Bob: b"}, "both approve and reject"),
    ],
)
def test_what_is_no_word_is_said(written: dict[str, str], line: str) -> None:
    with pytest.raises(UserError, match=line):
        word_of(written)


def test_an_approval_on_the_page_makes_the_champion_and_stands_in_the_audit_log(night) -> None:
    night("one")
    night("two", approval=True)
    write("approve", "Ann: samples read", version=1)  # version 1 does not wait
    assert apply_decisions() == [] and champion() == 1
    write("approve", "Ann: samples read")
    assert apply_decisions() == [f"{NAME} version 2: approve by {PAGE}: samples read"]
    assert champion() == 2 and apply_decisions() == []
    assert audit.entries(NAME)[-1].by == PAGE and audit.broken(NAME) == []
    record = read_verdict(registry.version_info(NAME, 2))
    assert record is not None and record.ruling is not None
    assert (record.ruling.approved, record.ruling.by, record.ruling.why) == (True, PAGE, "samples read")
    assert not {"approve", tags.PROBLEM} & shown().keys()


def test_a_rejection_on_the_page_ends_the_waiting(night) -> None:
    night("one")
    night("two", approval=True)
    write("reject", "Bob: wrong language")
    assert apply_decisions() == [f"{NAME} version 2: reject by Bob, on MLflow's page: wrong language"]
    assert champion() == 1 and audit.entries(NAME)[-1].did == "rejected" and "reject" not in shown()


def test_what_cannot_be_done_is_answered_once_until_the_word_changes(night) -> None:
    night("one")
    night("two", approval=True)
    night("three", right=4)  # this changes the champion
    write("approve", "Ann")
    (said,) = apply_decisions()
    assert "no name or no reason" in said and "no name or no reason" in shown()[tags.PROBLEM]
    assert apply_decisions() == []
    write("approve", "Ann: fine")
    (said,) = apply_decisions()
    assert "champion" in said and said.removeprefix(f"{NAME} version 2: ") in shown()[tags.PROBLEM]
    assert apply_decisions() == [] and champion() == 3
    store.client().delete_model_version_tag(NAME, "2", "approve")
    write("reject", "Ann: too late")
    assert len(apply_decisions()) == 1 and tags.PROBLEM not in shown()


def test_two_that_look_at_once_promote_once(night, monkeypatch: pytest.MonkeyPatch) -> None:
    night("one")
    night("two", approval=True)
    write("approve", "Ann: fine")
    before, both = len(audit.entries(NAME)), threading.Barrier(2, timeout=60)
    whole = approval.approve

    def meet(*given: object, **named: str) -> object:
        both.wait()
        return whole(*given, **named)

    monkeypatch.setitem(approval_by_tag.DECISIONS, "approve", meet)  # type: ignore[arg-type]
    said: list[str] = []
    threads = [threading.Thread(target=lambda: said.extend(apply_decisions())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert champion() == 2 and tags.PROBLEM not in shown() and audit.broken(NAME) == []
    assert len(audit.entries(NAME)) == before + 1 and said


def test_a_lock_that_others_hold_is_no_answer(night, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.tracking import lock

    night("one")
    night("two", approval=True)
    write("approve", "Ann: fine")
    with monkeypatch.context() as held:
        held.setattr(lock, "PATIENCE", 0.0)
        with lock.registry_lock(NAME):
            lease = threading.Thread(target=lambda: said.extend(apply_decisions()))
            said: list[str] = []
            held.setattr(store, "exclusive", lambda name: threading.Lock())
            lease.start()
            lease.join()
        assert said == [] and tags.PROBLEM not in shown()
    assert len(apply_decisions()) == 1 and champion() == 2


def test_a_process_that_looks_leaves_the_environment_of_those_that_it_starts_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for given in (None, "http://127.0.0.1:5000"):
        if given is not None:
            monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
        else:
            monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        chosen = store.configure_here(home)
        assert os.environ.get("MLFLOW_TRACKING_URI") == given and store.current() == chosen
        assert chosen.uri == (given or f"sqlite:///{home / 'mlflow.db'}")


# ---------------------------------------- deliveries of webhooks


def post(address: str, body: bytes = b"{}") -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, data=body), timeout=20) as answered:
            return int(answered.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_delivery_makes_it_look_and_anything_else_does_not() -> None:
    looks: list[int] = []
    with receive_deliveries(lambda: looks.append(1), port=0) as address:
        assert post(address) == 204 and len(looks) == 1
        assert post(address.replace(PATH, "/other")) == 404
        port = int(address.split(":")[2].split("/")[0])
        large = HTTPConnection("127.0.0.1", port, timeout=20)
        large.putrequest("POST", PATH)
        large.putheader("Content-Length", str(2**20 + 1))
        large.endheaders()
        assert large.getresponse().status == 413
        large.close()
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(address, timeout=20)
        with pytest.raises(UserError, match="--port takes another"), receive_deliveries(lambda: None, port):
            pass
    assert len(looks) == 1


def test_where_mlflow_refuses_the_address_it_is_said(server: Any) -> None:
    with webhooks.open_webhook("http://127.0.0.1:4205/look") as refused:
        assert "scheme" in refused and "\n" not in refused


@pytest.mark.slow
def test_a_tag_set_through_mlflows_server_is_carried_out_at_once(
    server: Any, policy_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own webhook must cause this. The periodic check would only follow after an hour."""
    server.kill()
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOWED_SCHEMES", "http,https")
    monkeypatch.setenv("MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS", "true")
    server.start()
    try:
        done = threading.Event()
        with check_registry(3600, lambda said: done.set()) as look, receive_deliveries(look, port=0) as address:
            for _ in range(2):
                with webhooks.open_webhook(address) as refused:
                    assert refused == ""
                    with webhooks.open_webhook(address):  # replaces the webhook that a killed process has left
                        assert len(store.client().list_webhooks()) == 1
            with webhooks.open_webhook(address) as refused:
                assert refused == ""
                night = nights(tmp_path / "home", policy_folder, tmp_path)
                night("one")
                night("two", approval=True)
                write("approve", "Ann: fine")
                assert done.wait(60) and champion() == 2
        assert len(store.client().list_webhooks()) == 0 and aliases.history(NAME)
        assert audit.entries(NAME)[-1].by == PAGE
    finally:
        server.kill()
