"""An append-only log of the decisions about a model's champion and anchor, with person, time and reason.

`rewardflow audit` shows it.

The log is stored in the registry, where every machine that promotes can read it: the registered model `NAME-audit` has
a tag for each entry, numbered from 1. Each entry contains the hash of the entry before. The model records the hash of
the newest entry, and each version records the hash of its own. An entry that was changed, removed or inserted later
therefore breaks the chain, and one that was cut off at the end is missed by model and version. Entries are written
under the promotion lock.
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

from models.base.errors import UserError
from tasks.host import clock
from tasks.tracking import lock, registry, store, tags
from tasks.tracking.verdict_record import decided, read_verdict
from tasks.tracking.verdict_text import verdict_text

SUFFIX = "-audit"
LONGEST = 2000
"""Longest reason, characters: it fits into a tag of every store together with the rest of the entry."""

Deed = Literal["judged", "promoted", "rejected", "anchored", "noticed"]


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """One decision or change, with its author and reason."""

    number: int
    at: str
    """UTC."""
    did: Deed
    """judged: the gate kept the champion, refused the version or made it wait for approval; promoted, rejected and
    anchored: done by the gate or a person; noticed: done outside Rewardflow by an unknown person at an unknown time."""
    version: int | None
    """The version concerned; None: no version is champion."""
    before: int | None
    """The champion (or, for `anchored`, the anchor) that it replaced."""
    by: str
    why: str
    gate: str
    """The gate's verdict on the version."""
    previous: str
    """Hash of the previous entry; empty for the first."""
    sha256: str = ""
    """Hash of all other fields."""

    def hashed(self) -> AuditEntry:
        """Return a copy with its hash filled in."""
        fields = asdict(replace(self, sha256=""))
        fields_text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return replace(self, sha256=hashlib.sha256(fields_text.encode()).hexdigest())


def person() -> str:
    """Return the user and host of this process, as far as the machine knows them."""
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
) -> AuditEntry:
    """Append an entry about a version of `name`, and record its hash on the model and that version.

    If no version is champion, the hash is recorded on the champion before. An entry equal to the last one is not
    appended again, so a process that was killed between two steps can repeat all of them.

    Args:
        gate: the gate's verdict on the version, if it is not yet recorded on the version.

    Raises:
        UserError: another process has taken the promotion lock.
    """
    existing = entries(name)
    last = existing[-1] if existing else None
    if last is not None and (last.did, last.version, last.before, last.why) == (did, version, before, why[:LONGEST]):
        entry = last
    else:
        info = None if version is None else registry.version_info(name, version)
        entry = AuditEntry(
            number=len(existing) + 1,
            at=clock.stamp(),
            did=did,
            version=version,
            before=before,
            by=by,
            why=why[:LONGEST],
            gate=(gate or _verdict_of(info))[:LONGEST],
            previous=last.sha256 if last is not None else "",
        ).hashed()
        registry.make_model(_log_model(name))
        registry.describe_model(
            _log_model(name), f"Who changed the champion of {name}, when and why: `rewardflow audit`."
        )
        entry_text = json.dumps(asdict(entry), ensure_ascii=False)
        lease.write(store.client().set_registered_model_tag, _log_model(name), _key(entry.number), entry_text)
    entry_hash = f"{entry.number} {entry.sha256}"
    lease.write(store.client().set_registered_model_tag, name, tags.AUDITED, entry_hash)
    if version is not None:
        registry.annotate(name, version, {tags.AUDITED: entry_hash})
    elif before is not None:
        with suppress(UserError):  # it may have been deleted, its alias with it
            registry.annotate(name, before, {tags.AUDITED: entry_hash})
    return entry


def entries(name: str) -> list[AuditEntry]:
    """Return the log of a model as stored, oldest entry first; `broken` checks whether it is complete.

    Raises:
        UserError: an entry cannot be parsed.
    """
    parsed = []
    for key, entry_text in sorted(registry.model_tags(_log_model(name)).items()):
        if key.startswith(tags.AUDIT):
            try:
                parsed.append(AuditEntry(**json.loads(entry_text)))
            except (TypeError, ValueError) as error:
                number = key.removeprefix(tags.AUDIT)
                raise UserError(f"the audit log of {name}: record {number} is not an entry: {error}") from None
    return parsed


def broken(name: str) -> list[str]:
    """Return the entries of a model's log that were changed, moved or removed, one sentence each; empty if intact."""
    log = entries(name)
    recorded_hashes = {
        f"the last about version {info.version}": registry.facts_of(info).get(tags.AUDITED, "")
        for info in sorted(registry.versions(name), key=lambda info: info.version)
    }
    recorded_hashes["the newest"] = registry.model_tags(name).get(tags.AUDITED, "")
    hashes_by_number = {entry.number: entry.sha256 for entry in log}
    missing_entries: dict[int, str] = {}
    for position, recorded in recorded_hashes.items():
        number, _, sha256 = recorded.partition(" ")
        if sha256 and hashes_by_number.get(int(number)) != sha256:  # an earlier Rewardflow wrote no hash
            finding = "reads otherwise" if int(number) in hashes_by_number else "is gone"
            missing_entries.setdefault(int(number), f"entry {number}, {position}, {finding}")
    return [*_find_breaks(log), *missing_entries.values()]


def line(entry: AuditEntry) -> str:
    """Format an entry for a person."""
    version_text = "no version" if entry.version is None else f"version {entry.version}"
    before_text = f", before it version {entry.before}" if entry.before is not None else ""
    return f"{entry.number:>4}  {entry.at}  {entry.did} {version_text}{before_text}, by {entry.by}: {entry.why}"


def _verdict_of(info: registry.VersionInfo | None) -> str:
    """Return the verdict on a version in one sentence; empty if it has not been judged."""
    record = read_verdict(info) if info is not None and decided(info) is not None else None
    return verdict_text(record) if record is not None else ""


def _find_breaks(log: Sequence[AuditEntry]) -> list[str]:
    """Return the entries that were changed or moved, one sentence each."""
    breaks: list[str] = []
    previous = ""
    for place, entry in enumerate(log, 1):
        if entry.number != place:
            return [*breaks, f"entry {place} is missing: the next has the number {entry.number}"]
        if entry.hashed().sha256 != entry.sha256:
            breaks.append(f"entry {place} was changed: its hash is not that of what it says")
        if entry.previous != previous:
            breaks.append(f"entry {place} does not follow entry {place - 1}: that was changed")
        previous = entry.sha256
    return breaks


def _log_model(name: str) -> str:
    return f"{name}{SUFFIX}"


def _key(number: int) -> str:
    return f"{tags.AUDIT}{number:06d}"
