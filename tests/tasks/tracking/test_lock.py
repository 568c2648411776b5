"""Promotions from several machines leave one champion. Changes of its alias by others are recorded and not reverted.

A real MLflow server on loopback is used where two state folders meet, and one store where it makes no difference.
"""

import signal
from pathlib import Path

import pytest
from promoting import promote_at_once, started

from models.base.errors import UserError
from tasks.tracking import aliases, lock, process, registry, runs, store, tags
from tasks.tracking.verdict_record import VerdictRecord
from tests.support.fault_table import PROPERTY
from tests.support.verdict_examples import store_verdict

pytestmark = pytest.mark.rotating(of=6)

NAME = "policy"

HOLD = """
import sys, time
from pathlib import Path
from tasks.tracking import lock, store
store.configure(Path(sys.argv[1]))
with lock.registry_lock("policy"):
    print("held", flush=True)
    time.sleep(600)
"""


def versions(folder: Path, count: int) -> None:
    """Register versions 1 to `count`, and make version 1 the champion."""
    run_id = runs.open_flow_run("e", "n")
    model = registry.log_model(run_id, folder, NAME, "text-generation")
    for _ in range(count):
        registry.register(NAME, model)
    aliases.promote(NAME, 1)


def champion() -> int | None:
    there = registry.champion(NAME)
    return there.version if there else None


def locks() -> list[str]:
    there = store.client().search_registered_models()
    return [model.name for model in there if "lock" in model.name]


# ---------------------------------------- two machines


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.faults
def test_two_promotions_at_once_from_two_state_folders_leave_one_champion(
    server, tmp_path: Path, policy_folder: Path, record_property
):
    versions(policy_folder, 3)
    winner, refused = promote_at_once({number: tmp_path / f"home{number}" for number in (2, 3)})
    assert refused.endswith(f"was compared with version 1, but the champion is now version {winner}: evaluate it again")
    assert champion() == winner and len(aliases.history(NAME)) == 2
    assert locks() == []
    record_property(PROPERTY, ("two promotions at one moment", f"`error: {refused}`", "one champion, log whole", "0"))


@pytest.mark.slow
def test_a_lock_whose_holder_was_killed_is_taken_at_once(home: Path, tmp_path: Path, policy_folder: Path):
    versions(policy_folder, 2)
    address = f"sqlite:///{home / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)  # the same registry, another state folder
        holder = started(HOLD, tmp_path / "elsewhere")
    assert locks() == [f"{NAME}{lock.SUFFIX}"]
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    aliases.promote(NAME, 2)
    assert champion() == 2


# ---------------------------------------- the lock


@pytest.fixture
def elsewhere(home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a registry whose lock belongs to a process of another host, which cannot be checked for life."""
    versions(policy_folder, 2)
    monkeypatch.setattr(lock, "PAUSE", 0.02)
    with monkeypatch.context() as patch:
        patch.setattr(process, "mark", lambda: {tags.HOST: "another", tags.PID: "7", tags.STARTED: "0"})
        assert lock._create(lock.Lease(f"{NAME}{lock.SUFFIX}", "theirs"))


def test_a_lock_of_another_host_is_waited_for_and_taken_when_it_stands_still(elsewhere, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 0.3)
    aliases.promote(NAME, 2)
    assert champion() == 2
    assert locks() == [f"{NAME}{lock.SUFFIX}{lock.TAKEN}theirs"]  # so that it is not taken twice


def test_a_holder_that_works_is_not_robbed(elsewhere, monkeypatch):
    monkeypatch.setattr(lock, "LEASE", 0.3)
    monkeypatch.setattr(lock, "PATIENCE", 1.5)
    theirs, waited = lock.Lease(f"{NAME}{lock.SUFFIX}", "theirs"), lock.time.sleep

    def sleep(seconds: float) -> None:
        theirs.confirm()
        waited(seconds)

    monkeypatch.setattr(lock.time, "sleep", sleep)
    with pytest.raises(UserError, match="is held by process 7 on another"):
        aliases.promote(NAME, 2)
    assert champion() == 1


def test_of_two_who_see_a_lock_expire_the_second_does_not_take_the_lock_of_the_first(elsewhere):
    name = f"{NAME}{lock.SUFFIX}"
    lock._take(name, "theirs")
    first = lock.Lease(name, "first")
    assert lock._create(first)
    lock._take(name, "theirs")  # the second process decided to take the lock before the first acted
    first.confirm()
    assert not lock._create(lock.Lease(name, "second"))


def test_a_holder_that_was_too_slow_writes_nothing(elsewhere, monkeypatch):
    set_alias = aliases._set_alias

    def slowly(there, alias, *lease):
        set_alias(there, alias, *lease)
        if alias == registry.PREVIOUS:  # the process sleeps here for longer than its lease
            lock._take(
                f"{NAME}{lock.SUFFIX}",
                store.client().get_registered_model(f"{NAME}{lock.SUFFIX}").tags[tags.LOCK_TOKEN],
            )
            assert lock._create(lock.Lease(f"{NAME}{lock.SUFFIX}", "another"))

    monkeypatch.setattr(lock, "LEASE", 0.1)
    monkeypatch.setattr(aliases, "_set_alias", slowly)
    with pytest.raises(UserError, match="was taken by process"):
        aliases.promote(NAME, 2)
    assert champion() == 1
    assert store.client().get_registered_model(f"{NAME}{lock.SUFFIX}").tags[tags.LOCK_TOKEN] == "another"


# ---------------------------------------- changes of the alias by others


def test_an_alias_set_by_hand_is_noticed_once_recorded_and_left(home: Path, policy_folder: Path):
    versions(policy_folder, 3)
    kept = VerdictRecord(decision="kept", reason="not_better", earlier_text="not better")
    store_verdict(NAME, 3, kept)
    assert aliases.record_outside_changes(NAME) == ""
    store.client().set_registered_model_alias(NAME, registry.CHAMPION, "3")
    said = aliases.record_outside_changes(NAME)
    assert said == "version 3 was made champion outside Rewardflow, instead of version 1; of itself: kept: not better"
    assert champion() == 3 and aliases.record_outside_changes(NAME) == ""
    newest, before = aliases.history(NAME)
    assert newest.endswith("version 3 (noticed: set outside Rewardflow; its time and author are unknown)")
    assert "version 1 (by hand)" in before
    assert "unknown" in registry.facts_of(registry.version_info(NAME, 3))[tags.PROMOTED_BY]
    assert aliases.rollback(NAME).version == 1


def test_the_gate_judges_against_a_champion_set_by_hand(home: Path, policy_folder: Path):
    versions(policy_folder, 3)
    store.client().set_registered_model_alias(NAME, registry.CHAMPION, "2")
    with pytest.raises(UserError, match="the champion is now version 2: evaluate it again"):
        aliases.promote(NAME, 3, why="gate", judged_against=1)
    aliases.record_outside_changes(NAME)
    aliases.promote(NAME, 3, why="gate", judged_against=2)
    assert champion() == 3 and aliases.record_outside_changes(NAME) == ""


def test_a_deleted_champion_alias_is_noticed_once_and_left(home: Path, policy_folder: Path):
    versions(policy_folder, 2)
    store.client().delete_registered_model_alias(NAME, registry.CHAMPION)
    assert aliases.record_outside_changes(NAME).startswith(
        "version 1 was champion; its alias was deleted outside Rewardflow"
    )
    assert champion() is None and aliases.record_outside_changes(NAME) == ""
    assert "no champion (noticed: version 1 was champion" in aliases.history(NAME)[0]
    aliases.promote(NAME, 2, why="gate", judged_against=None)
    assert champion() == 2 and aliases.record_outside_changes(NAME) == ""


def test_a_first_champion_set_by_hand_is_noticed_and_a_model_without_one_is_not(home: Path, policy_folder: Path):
    assert aliases.record_outside_changes(NAME) == ""
    run_id = runs.open_flow_run("e", "n")
    registry.register(NAME, registry.log_model(run_id, policy_folder, NAME, "text-generation"))
    assert aliases.record_outside_changes(NAME) == ""
    store.client().set_registered_model_alias(NAME, registry.CHAMPION, "1")
    assert "instead of no champion; of itself: it was never judged by the gate" in aliases.record_outside_changes(NAME)


def test_a_promotion_that_was_killed_before_its_record_is_no_deed_of_others(
    home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    versions(policy_folder, 2)

    def killed(name: str, version: int | None, why: str, at: str = "") -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(aliases, "_remember", killed)
        with pytest.raises(KeyboardInterrupt):
            aliases.promote(NAME, 2, why="gate")
    assert champion() == 2
    assert aliases.record_outside_changes(NAME) == ""
    assert aliases.history(NAME)[0].endswith("version 2 (gate)") and len(aliases.history(NAME)) == 2
