"""An append-only log of who changed what a model's champion is, when and why: `rewardflow audit`.

It stands in the registry, where every machine that promotes reads it: the registered model `NAME-audit` has a tag for
each entry, numbered from 1. An entry holds the hash of the one before; the model notes that of the newest, and the
version that an entry is about notes its own: an entry that was changed, taken out or put in later breaks the chain, one
that was cut off the end is missed by model and version. Entries are written under the promotion lock.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Literal

from models.errors import UserError
from tasks.host import clock
from tasks.tracking import lock, registry, store, tags
from tasks.tracking.verdict_record import decided, read_verdict
from tasks.tracking.verdict_text import verdict_text

SUFFIX = "-audit"
LONGEST = 2000
"""Characters of a reason: what a tag of every store has room for, beside the rest of the entry."""

Deed = Literal["judged", "promoted", "rejected", "anchored", "noticed"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What was done, by whom and why."""

    number: int
    at: str
    """UTC."""
    did: Deed
    """judged: the gate held it back; noticed: it was done outside Rewardflow, when and by whom is unknown."""
    version: int | None
    """That it was done to; None: no version is champion."""
    before: int | None
    """The champion, or for `anchored` the anchor, that it replaced."""
    by: str
    why: str
    gate: str
    """What the gate had said of the version."""
    previous: str
    """Hash of the entry before; empty for the first."""
    sha256: str = ""
    """Of all the other fields."""

    def hashed(self) -> Entry:
        """The same with its hash."""
        fields = asdict(replace(self, sha256=""))
        written = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return replace(self, sha256=hashlib.sha256(written.encode()).hexdigest())


def person() -> str:
    """Who runs this process, as far as the machine knows."""
    try:
        return f"{getpass.getuser()} on {socket.gethostname()}"
    except (KeyError, OSError):  # a container may have no name for its user
        return f"a person on {socket.gethostname()}"


def append(
    name: str,
    lease: lock.Lease,
    did: Deed,
    version: int | None,
    *,
    by: str,
    why: str,
    before: int | None = None,
    gate: str = "",
) -> Entry:
    """Write an entry about a version of `name`, and its hash on the model and that version; on the one before, where
    none came after it. One that is the last already stays so: who was killed between two steps does all again.

    Args:
        gate: what the gate said of the version, where that does not stand on it yet.

    Raises:
        UserError: the promotion lock was taken by another.
    """
    there = entries(name)
    last = there[-1] if there else None
    if last is not None and (last.did, last.version, last.before, last.why) == (did, version, before, why[:LONGEST]):
        entry = last
    else:
        info = None if version is None else registry.version_info(name, version)
        entry = Entry(
            number=len(there) + 1,
            at=clock.stamp(),
            did=did,
            version=version,
            before=before,
            by=by,
            why=why[:LONGEST],
            gate=(gate or _verdict_of(info))[:LONGEST],
            previous=last.sha256 if last is not None else "",
        ).hashed()
        registry.make_model(_log(name))
        registry.describe_model(_log(name), f"Who changed the champion of {name}, when and why: `rewardflow audit`.")
        written = json.dumps(asdict(entry), ensure_ascii=False)
        lease.write(store.client().set_registered_model_tag, _log(name), _key(entry.number), written)
    noted = f"{entry.number} {entry.sha256}"
    lease.write(store.client().set_registered_model_tag, name, tags.AUDITED, noted)
    if version is not None:
        registry.annotate(name, version, {tags.AUDITED: noted})
    elif before is not None:
        with suppress(UserError):  # it may have been deleted, its alias with it
            registry.annotate(name, before, {tags.AUDITED: noted})
    return entry


def entries(name: str) -> list[Entry]:
    """The log of a model, the oldest entry first, as it stands: `broken` says whether it is whole.

    Raises:
        UserError: an entry that is none.
    """
    read = []
    for key, written in sorted(registry.model_tags(_log(name)).items()):
        if key.startswith(tags.AUDIT):
            try:
                read.append(Entry(**json.loads(written)))
            except (TypeError, ValueError) as error:
                number = key.removeprefix(tags.AUDIT)
                raise UserError(f"the audit log of {name}: what stands as {number} is no entry: {error}") from None
    return read


def broken(name: str) -> list[str]:
    """What was changed in the log of a model by others than Rewardflow, a sentence each; empty where it is whole."""
    log = entries(name)
    noted = {
        f"the last about version {info.version}": registry.facts_of(info).get(tags.AUDITED, "")
        for info in sorted(registry.versions(name), key=lambda info: info.version)
    }
    noted["the newest"] = registry.model_tags(name).get(tags.AUDITED, "")
    known = {entry.number: entry.sha256 for entry in log}
    missed: dict[int, str] = {}
    for which, said in noted.items():
        number, _, sha256 = said.partition(" ")
        if sha256 and known.get(int(number)) != sha256:  # none stands in what an earlier Rewardflow wrote
            how = "reads otherwise" if int(number) in known else "is gone"
            missed.setdefault(int(number), f"entry {number}, {which}, {how}")
    return [*_breaks(log), *missed.values()]


def line(entry: Entry) -> str:
    """An entry as a person reads it."""
    what = "no version" if entry.version is None else f"version {entry.version}"
    instead = f", before it version {entry.before}" if entry.before is not None else ""
    return f"{entry.number:>4}  {entry.at}  {entry.did} {what}{instead}, by {entry.by}: {entry.why}"


def _verdict_of(info: registry.VersionInfo | None) -> str:
    """Return the verdict on a version in one sentence; empty where it has not been judged."""
    record = read_verdict(info) if info is not None and decided(info) is not None else None
    return verdict_text(record) if record is not None else ""


def _breaks(log: Sequence[Entry]) -> list[str]:
    """Entries that are not what was written, or not where."""
    said: list[str] = []
    previous = ""
    for place, entry in enumerate(log, 1):
        if entry.number != place:
            return [*said, f"entry {place} is missing: the next has the number {entry.number}"]
        if entry.hashed().sha256 != entry.sha256:
            said.append(f"entry {place} was changed: its hash is not that of what it says")
        if entry.previous != previous:
            said.append(f"entry {place} does not follow entry {place - 1}: that was changed")
        previous = entry.sha256
    return said


def _log(name: str) -> str:
    return f"{name}{SUFFIX}"


def _key(number: int) -> str:
    return f"{tags.AUDIT}{number:06d}"
