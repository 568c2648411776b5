"""A retried write checks the lock again, because a server may be away for longer than the lock lasts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from test_lock import NAME, champion, versions

from models.base.errors import UserError
from models.evaluation.gate.gate import GateSettings
from tasks.gate.gate_split import sketch_of
from tasks.tracking import aliases, lock, registry, store, tags
from tasks.tracking.looks import take_look

LOCK = f"{NAME}{lock.SUFFIX}"
SKETCH = sketch_of(["a", "b", "c"])


def lock_tags() -> dict[str, str]:
    return dict(store.client().get_registered_model(LOCK).tags)


@pytest.fixture
def away(home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Return a function that makes the server fail at one call, while another process takes the lock."""
    versions(policy_folder, 2)

    def at(method: str, argument: str) -> None:
        client, gone = type(store.client()), []
        call = getattr(client, method)

        def flaky(self, *given, **named):
            if argument in given and not gone:
                gone.append(argument)
                lock._take(LOCK, lock_tags()[tags.LOCK_TOKEN])
                assert lock._create(lock.Lease(LOCK, "another"))
                raise ConnectionError("the server is away")
            return call(self, *given, **named)

        monkeypatch.setattr(client, method, flaky)

    return at


@pytest.mark.rotating(of=6)
def test_a_champion_is_not_set_by_a_retry_after_the_lock_was_lost(away):
    away("set_registered_model_alias", registry.CHAMPION)
    with pytest.raises(UserError, match="was taken by process"):
        aliases.promote(NAME, 2)
    assert champion() == 1 and lock_tags()[tags.LOCK_TOKEN] == "another"


@pytest.mark.rotating(of=6)
def test_an_anchor_is_not_set_by_a_retry_after_the_lock_was_lost(away):
    away("set_registered_model_alias", registry.ANCHOR)
    with pytest.raises(UserError, match="was taken by process"):
        aliases.set_anchor(NAME, 2)
    there = registry.by_alias(NAME, registry.ANCHOR)
    assert there is not None and there.version == 1


@pytest.mark.rotating(of=6)
def test_a_look_is_not_written_by_a_retry_after_the_lock_was_lost(away):
    take_look(NAME, "aaaa", SKETCH, "1 against 0", GateSettings())
    counted = registry.model_tags(NAME)[f"{tags.LOOKS}aaaa"]
    away("set_registered_model_tag", f"{tags.LOOKS}aaaa")
    with pytest.raises(UserError, match="was taken by process"):
        take_look(NAME, "aaaa", SKETCH, "2 against 1", GateSettings())
    assert registry.model_tags(NAME)[f"{tags.LOOKS}aaaa"] == counted


@pytest.mark.rotating(of=6)
def test_the_beat_of_a_lock_that_was_lost_is_not_written_on_that_of_another(away):
    lease = lock.Lease(LOCK, "ours")
    assert lock._create(lease)
    away("set_registered_model_tag", tags.LOCK_BEAT)
    with pytest.raises(UserError, match="was taken by process"):
        lease.confirm()
    assert (lock_tags()[tags.LOCK_TOKEN], lock_tags()[tags.LOCK_BEAT]) == ("another", "0")
