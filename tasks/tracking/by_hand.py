"""A champion that was set outside Rewardflow and waits for the gate: its version, and the champion that it replaced.

It is one tag of the registered model, so that any machine that runs next judges it. The tag is set before the change is
recorded as noticed and deleted when the verdict is recorded. If a run is killed in between, the next run continues.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tasks.tracking import registry, store, tags


@dataclass(frozen=True)
class PendingChampion:
    """A version that a person made champion and that the gate has not yet compared with the champion before."""

    version: int
    against: int | None
    """The champion before; None if unknown."""


def waiting(name: str) -> PendingChampion | None:
    """Return the champion set by hand that the gate has not judged yet; None if there is none."""
    noted = registry.model_tags(name).get(tags.WAITS_FOR_GATE, "")
    return PendingChampion(**json.loads(noted)) if noted else None


def wait_for_gate(name: str, version: int, before: int | None) -> None:
    """Record that `version` was made champion by hand instead of `before`.

    If `before` itself was set by hand and still waits, `version` is compared with the champion before that: a version
    that was never judged does not become the baseline. A return to that champion leaves nothing to judge.
    """
    there = waiting(name)
    against = there.against if there is not None and there.version == before else before
    if against == version:
        settled(name)
        return
    registry.set_model_tag(name, tags.WAITS_FOR_GATE, json.dumps(asdict(PendingChampion(version, against))))


def settled(name: str, which: PendingChampion | None = None) -> None:
    """Delete the record of the version that waits for the gate; with `which`, only if that version still waits."""
    there = waiting(name)
    if there is not None and which in (None, there):
        store.patiently(store.client().delete_registered_model_tag, name, tags.WAITS_FOR_GATE)
