"""A champion that was set outside Rewardflow and waits for the gate: which version, and whose place it took.

One tag of the registered model, so that whichever machine runs next judges it. It is set before the change counts as
noticed and goes when the verdict is recorded: a run that is killed in between leaves it to the next.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tasks.tracking import registry, store, tags


@dataclass(frozen=True)
class Waiting:
    """A version that a person made champion, and that the gate has not held against the champion before."""

    version: int
    against: int | None
    """The champion before; None where none is known."""


def waiting(name: str) -> Waiting | None:
    """What waits for the gate; None where nothing was set by hand since the last verdict."""
    noted = registry.model_tags(name).get(tags.WAITS_FOR_GATE, "")
    return Waiting(**json.loads(noted)) if noted else None


def wait_for_gate(name: str, version: int, before: int | None) -> None:
    """Note that `version` was made champion by hand in place of `before`.

    Where `before` was set by hand itself and waits, the version is held against the champion before that: nothing
    that was never judged becomes the measure. A return to that champion leaves nothing to judge.
    """
    there = waiting(name)
    against = there.against if there is not None and there.version == before else before
    if against == version:
        settled(name)
        return
    registry.set_model_tag(name, tags.WAITS_FOR_GATE, json.dumps(asdict(Waiting(version, against))))


def settled(name: str, which: Waiting | None = None) -> None:
    """Nothing waits any more; with `which`, only where that still is what waits."""
    there = waiting(name)
    if there is not None and which in (None, there):
        store.patiently(store.client().delete_registered_model_tag, name, tags.WAITS_FOR_GATE)
