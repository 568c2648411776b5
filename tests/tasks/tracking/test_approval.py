"""Approval and rejection of a waiting candidate by a person, and the audit log, tested in a real registry."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from nights import champion, nights
from test_gate_promotion import NAME

from models.base.errors import UserError
from tasks.gate import approval
from tasks.steps.promote import Promotion
from tasks.tracking import aliases, audit, registry, store, summaries, tags
from tasks.tracking.verdict_record import read_verdict
from tasks.tracking.verdict_text import verdict_text

pytestmark = pytest.mark.rotating(of=8)

LOG = f"{NAME}{audit.SUFFIX}"
ANN = {"by": "Ann", "why": "samples read"}


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path) -> Callable[..., Promotion]:
    return nights(home, policy_folder, tmp_path)


def deeds() -> list[tuple[str, int | None, int | None, str]]:
    return [(entry.did, entry.version, entry.before, entry.by) for entry in audit.entries(NAME)]


def test_an_approved_candidate_is_champion_and_who_when_and_why_stand_on_it_and_in_the_log(night):
    night("one")
    waiting = night("two", approval=True)
    assert waiting.decision == "waiting" and champion() == 1
    assert approval.approve(NAME, 2, **ANN).version == champion() == 2
    info = registry.version_info(NAME, 2)
    record = read_verdict(info)
    assert record is not None and record.ruling is not None and info.tags[tags.DECISION] == record.decision
    assert (record.decision, record.reason, record.champion) == ("promoted", "approved", 1)
    assert (record.ruling.approved, record.ruling.by, record.ruling.why) == (True, "Ann", "samples read")
    assert verdict_text(record).startswith("promoted: approved by Ann; the gate: better than champion, version 1: +")
    assert info.description.startswith("Approved by Ann: samples read (20") and "Passed the gate: " in info.description
    assert store.client().get_run(info.tags[tags.RUN]).data.tags[tags.RUN_VERDICT] == "approved"
    assert summaries.name_and_note(info.tags[tags.RUN])[1].startswith("Approved by Ann: samples read (20")
    assert deeds() == [
        ("promoted", 1, None, "gate"),
        ("judged", 2, None, "gate"),
        ("promoted", 2, 1, "Ann"),
    ]
    assert audit.entries(NAME)[0].gate.startswith("promoted: better than the base model: +")
    last = audit.entries(NAME)[-1]
    assert last.why == "approved: samples read" and last.gate.startswith("waiting: better than champion, version 1: +")
    assert audit.broken(NAME) == []
    assert night("two", approval=True).reused and champion() == 2


def test_a_rejected_candidate_never_becomes_champion_by_itself(night):
    night("one")
    night("two", approval=True)
    approval.reject(NAME, 2, by="Bob", why="wrong language")
    info = registry.version_info(NAME, 2)
    record = read_verdict(info)
    assert record is not None and (record.decision, record.reason) == ("refused", "rejected")
    assert verdict_text(record).startswith("refused: rejected by Bob: wrong language; the gate: better than")
    assert night("two", approval=True).reused and night("two").reused and champion() == 1
    assert deeds()[-1] == ("rejected", 2, None, "Bob") and audit.broken(NAME) == []
    with pytest.raises(
        UserError, match=r"version 2 does not wait for approval \(refused: rejected by Bob.*waiting: none"
    ):
        approval.approve(NAME, 2, **ANN)


def test_where_the_champion_changed_meanwhile_the_candidate_is_judged_again_before_it_can_be_approved(night):
    night("one")
    night("two", approval=True)
    night("three", approval=True)
    approval.approve(NAME, 2, **ANN)
    with pytest.raises(UserError, match="version 3 was compared with version 1, but the champion is now version 2"):
        approval.approve(NAME, 3, **ANN)
    assert champion() == 2
    again = night("three", approval=True)
    assert (again.decision, again.reused, again.verdict.champion) == ("waiting", False, 2)
    approval.approve(NAME, 3, **ANN)
    assert champion() == 3 and audit.broken(NAME) == []


def test_a_word_without_a_name_or_a_reason_is_refused_and_nothing_is_written(night):
    night("one", approval=True)
    before = audit.entries(NAME)
    for by, why, said in (("", "why", "needs a name and a reason"), ("Ann", " ", "needs a name and a reason")):
        with pytest.raises(UserError, match=said):
            approval.approve(NAME, 1, by=by, why=why)
    with pytest.raises(UserError, match="name and reason have 2003 characters; 1900 is the most"):
        approval.reject(NAME, 1, by="Ann", why="w" * 2000)
    assert audit.entries(NAME) == before and champion() is None


def test_every_change_of_the_champion_has_its_entry_with_a_name(night):
    night("one")
    night("two", right=1, before=3)
    aliases.promote(NAME, 2, by="Ann", why="by hand")
    aliases.rollback(NAME, by="Bob", why="it stutters")
    aliases.set_anchor(NAME, 2, by="Ann")
    store.client().set_registered_model_alias(NAME, registry.CHAMPION, "2")
    aliases.record_outside_changes(NAME)
    store.client().delete_registered_model_alias(NAME, registry.CHAMPION)
    aliases.record_outside_changes(NAME)
    assert deeds() == [
        ("promoted", 1, None, "gate"),
        ("judged", 2, None, "gate"),
        ("promoted", 2, 1, "Ann"),
        ("promoted", 1, 2, "Bob"),
        ("anchored", 2, 1, "Ann"),
        ("noticed", 2, 1, "unknown"),
        ("noticed", None, 2, "unknown"),
    ]
    assert audit.entries(NAME)[3].why == "rollback from version 2: it stutters"
    assert audit.broken(NAME) == []


def written(number: int) -> str:
    return f"{tags.AUDIT}{number:06d}"


def tampered(number: int, **changes: object) -> str:
    """Return an entry with changed text, and with the hash of this text."""
    there = audit.AuditEntry(**{**json.loads(registry.model_tags(LOG)[written(number)]), **changes}).hashed()
    return json.dumps(there.__dict__)


@pytest.fixture
def log(night) -> None:
    night("one")
    night("two", approval=True)
    approval.approve(NAME, 2, **ANN)
    aliases.rollback(NAME, by="Bob")
    assert len(audit.entries(NAME)) == 4 and audit.broken(NAME) == []


def test_an_entry_whose_words_are_changed_is_noticed(log):
    entry = json.loads(registry.model_tags(LOG)[written(3)])
    registry.set_model_tag(LOG, written(3), json.dumps({**entry, "by": "Eve"}))
    assert audit.broken(NAME) == ["entry 3 was changed: its hash is not that of what it says"]


def test_an_entry_that_is_written_anew_with_a_fitting_hash_is_noticed(log):
    registry.set_model_tag(LOG, written(3), tampered(3, by="Eve"))
    assert audit.broken(NAME) == [
        "entry 4 does not follow entry 3: that was changed",
        "entry 3, the last about version 2, reads otherwise",
    ]


@pytest.mark.parametrize("lost", ["the alias", "the version"])
def test_an_entry_about_no_version_that_is_cut_off_is_noticed(log, lost: str) -> None:
    if lost == "the alias":
        store.client().delete_registered_model_alias(NAME, registry.CHAMPION)
    else:
        store.client().delete_model_version(NAME, str(champion()))
    aliases.record_outside_changes(NAME)
    assert deeds()[-1] == ("noticed", None, 1, "unknown") and audit.broken(NAME) == []
    registry.delete_model_tag(LOG, written(5))
    which = "the last about version 1" if lost == "the alias" else "the newest"
    assert audit.broken(NAME) == [f"entry 5, {which}, is gone"]


def test_a_log_from_before_the_model_noted_its_newest_entry_is_whole(log) -> None:
    registry.delete_model_tag(NAME, tags.AUDITED)
    assert audit.broken(NAME) == []


def test_an_entry_that_is_taken_out_or_cut_off_is_noticed(log):
    registry.delete_model_tag(LOG, written(4))
    assert audit.broken(NAME) == ["entry 4, the last about version 1, is gone"]
    registry.delete_model_tag(LOG, written(2))
    assert audit.broken(NAME)[0] == "entry 2 is missing: the next has the number 3"


def test_a_log_that_is_deleted_whole_or_is_no_log_is_noticed(log):
    registry.set_model_tag(LOG, written(1), "[]")
    with pytest.raises(UserError, match="record 000001 is not an entry"):
        audit.broken(NAME)
    store.client().delete_registered_model(LOG)
    assert len(audit.broken(NAME)) == 2


def test_who_was_killed_in_a_promotion_finds_one_entry_with_his_name_afterwards(night, monkeypatch):
    """The process is killed after the alias is set, before the entry; then after the entry, before the history."""
    night("one")
    night("two", right=1, before=3)
    for number, place in enumerate(("tasks.tracking.audit.append", "tasks.tracking.aliases._remember")):
        with monkeypatch.context() as killed:
            killed.setattr(place, lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                aliases.promote(NAME, 2 - number, by="Ann", why="by hand")
        assert champion() == 2 - number
        aliases.record_outside_changes(NAME)
        assert deeds()[2:] == [("promoted", 2, 1, "Ann"), ("promoted", 1, 2, "Ann")][: number + 1]
        assert audit.broken(NAME) == []
