"""Aliases of a policy's versions and their changes: `champion`, `previous`, `candidate` and `anchor`.

`champion` is the version in use, and `previous` the champion before. `candidate` is the newest judged version, until
it is promoted.

The anchor is the first champion unless a person names another version. Guards are also compared with the anchor, so
that losses within their margins do not add up over many promotions.

An alias keeps no history, so every change is also recorded in tags: on the versions concerned, and as a list of
champions on the registered model. Changes are made one at a time under a lock in the registry. A promotion may state
the champion that it was judged against. If the champion has changed since, the promotion is refused, so that it does
not replace a model that it was never compared with.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass

from models.base.errors import UserError
from tasks.host import clock
from tasks.tracking import anchor, audit, by_hand, earlier_releases, lock, registry, store, tags
from tasks.tracking.registry import ANCHOR, CANDIDATE, CHAMPION, PREVIOUS, VersionInfo
from tasks.tracking.verdict_record import decided, read_verdict
from tasks.tracking.verdict_text import verdict_text


class Unchecked:
    """Type of the sentinel `UNCHECKED`: promote without a check of which version is champion now."""


UNCHECKED = Unchecked()

UNKNOWN_AUTHOR = "unknown"
"""Recorded author of a change that was made outside Rewardflow."""
SET_BY_HAND = "set outside Rewardflow; its time and author are unknown"
"""Recorded reason for a champion that was set outside Rewardflow."""

_LONGEST_HISTORY = 4000
"""Maximum number of characters of the history tag: enough for about 40 changes."""


def set_candidate(name: str, version: int) -> VersionInfo:
    """Set the alias `candidate` on a version."""
    with store.exclusive("registry"):
        info = registry.version_info(name, version)
        _set_alias(info, CANDIDATE)
    return registry.version_info(name, version)


def promote(
    name: str,
    version: int,
    *,
    why: str = "by hand",
    by: str = "",
    verdict: str = "",
    judged_against: VersionInfo | int | Unchecked | None = UNCHECKED,
) -> VersionInfo:
    """Make a version the champion; the old champion becomes `previous`. Do nothing if the version is already champion.

    Changes of the aliases that were made outside Rewardflow are recorded first.

    Args:
        name: registered model.
        version: the new champion.
        why: reason for the record, e.g. "gate" or "by hand".
        by: the person who requests it; default: the user who runs this process.
        verdict: the gate's verdict, if it is not yet recorded on the version.
        judged_against: the champion that the version was compared with, None if there was none; by default the champion
            is not checked.

    Raises:
        UserError: the version does not exist, or the champion is not the one that it was compared with.
    """
    record_outside_changes(name)
    with lock.registry_lock(name) as lease:
        new, old = registry.version_info(name, version), registry.champion(name)
        if old is not None and old.version == new.version:
            _forget_promotion(name)  # one that was killed after its record
            return old
        if not isinstance(judged_against, Unchecked):
            expected = judged_against.version if isinstance(judged_against, VersionInfo) else judged_against
            if (old.version if old else None) != expected:
                raise UserError(
                    f"{name} version {version} was compared with {_version_text(expected)}, but the champion is now "
                    f"{_version_text(old.version if old else None)}: evaluate it again"
                )
        return _make_champion(new, old, why, by or audit.person(), lease, verdict)


def set_anchor(name: str, version: int, *, by: str = "", why: str = "by hand") -> VersionInfo:
    """Set the anchor: the version that every candidate's guards are compared with in addition to the champion.

    Args:
        by: the person who requests it; default: the user who runs this process.
        why: reason for the record.

    Raises:
        UserError: the version does not exist.
    """
    with lock.registry_lock(name) as lease:
        info, before = registry.version_info(name, version), registry.by_alias(name, ANCHOR)
        _set_alias(info, ANCHOR, lease)
        anchor.remember(name, version)
        replaced = before.version if before is not None else None
        audit.append(name, lease, "anchored", version, by=by or audit.person(), why=why, before=replaced)
    return registry.version_info(name, version)


def rollback(name: str, *, by: str = "", why: str = "") -> VersionInfo:
    """Swap champion and previous and return the new champion; a second rollback swaps them back.

    For a champion that was set outside Rewardflow, `previous` is the champion that it replaced.

    Args:
        by: the person who requests it; default: the user who runs this process.
        why: reason for the record.

    Raises:
        UserError: the model has no champion or no previous champion.
    """
    record_outside_changes(name)
    with lock.registry_lock(name) as lease:
        old, new = registry.champion(name), registry.by_alias(name, PREVIOUS)
        if old is None:
            raise UserError(f"{name} has no champion: nothing to roll back")
        if new is None or new.version == old.version:
            raise UserError(f"{name} has no previous champion to roll back to: version {old.version} is the first")
        reason = f"rollback from version {old.version}{f': {why}' if why else ''}"
        return _make_champion(new, old, reason, by or audit.person(), lease)


def record_outside_changes(name: str) -> str:
    """Detect and record changes of champion or anchor that were made outside Rewardflow since the last check.

    Anyone can set or delete the aliases in MLflow's UI and API. The alias `champion` is accepted: candidates are judged
    against the version that has it, and the champion before becomes `previous`. The new champion waits for the gate's
    judgement (tasks.tracking.by_hand). A deleted anchor is restored (tasks.tracking.anchor).

    Returns:
        What was done, in one sentence; empty if nothing was done.
    """
    if not _changed(name) and not anchor.changed(name, _champions(name)):
        return ""
    with lock.registry_lock(name) as lease:
        champion_change = _notice_champion(name, lease)
        return "; ".join(filter(None, [champion_change, anchor.record_outside_changes(name, _champions(name), lease)]))


def _notice_champion(name: str, lease: lock.Lease) -> str:
    if not _changed(name):
        return ""
    before, champion = _recorded_champion(name), registry.champion(name)
    promotion_text = _model_tags(name).get(tags.PROMOTING, "")
    if champion is not None and promotion_text.startswith("{"):
        promoting = json.loads(promotion_text)
        if promoting["version"] == champion.version:  # a promotion of ours was killed in between
            audit.append(name, lease, "promoted", **promoting)
            _remember(name, champion.version, promoting["why"])
            return ""
    if champion is None:
        change = f"version {before} was champion; its alias was deleted outside Rewardflow"
        by_hand.settled(name)
        audit.append(name, lease, "noticed", None, by=UNKNOWN_AUTHOR, why="its alias was deleted", before=before)
        _remember(name, None, f"noticed: {change}; its time and author are unknown")
        return f"{change}; candidates are judged against the base model until there is a champion again"
    record = read_verdict(champion) if decided(champion) is not None else None
    verdict = verdict_text(record) if record is not None else "it was never judged by the gate"
    change = f"version {champion.version} was made champion outside Rewardflow, instead of {_version_text(before)}"
    lease.confirm()
    replaced = None
    with suppress(UserError):  # it may have been deleted, too
        replaced = registry.version_info(name, before or 0)
    if replaced is not None:
        _set_alias(replaced, PREVIOUS, lease)
    why = SET_BY_HAND
    registry.annotate(name, champion.version, {tags.PROMOTED_AT: f"noticed {clock.stamp()}", tags.PROMOTED_BY: why})
    by_hand.wait_for_gate(name, champion.version, before or _last_champion(name))
    audit.append(name, lease, "noticed", champion.version, by=UNKNOWN_AUTHOR, why=why, before=before)
    _remember(name, champion.version, f"noticed: {why}")
    return f"{change}; of itself: {verdict}"


def _changed(name: str) -> bool:
    champion = registry.champion(name)
    return (champion.version if champion else None) != _recorded_champion(name)


def _recorded_champion(name: str) -> int | None:
    """Return the champion according to Rewardflow's history, not the alias; None if there is none."""
    newest = next(iter(_changes(name)), None)
    return newest.version if newest is not None else None


def _last_champion(name: str) -> int | None:
    """Return the newest version that was champion in the history, whether or not it still is."""
    return next(reversed(_champions(name)), None)


def _champions(name: str) -> list[int]:
    """Return all versions that were champion in the history, oldest first."""
    return [change.version for change in reversed(_changes(name)) if change.version is not None]


@dataclass(frozen=True)
class ChampionChange:
    """A change of the champion in the history."""

    at: str
    """UTC."""
    version: int | None
    """The new champion; None if the alias was deleted."""
    why: str

    def __str__(self) -> str:
        champion = "no champion" if self.version is None else f"version {self.version}"
        return f"{self.at} {champion} ({self.why})"


def history(name: str) -> list[str]:
    """Return the recorded changes of a model's champion, newest first, one line each; about 40 are kept."""
    return [str(change) for change in _changes(name)]


def _changes(name: str) -> list[ChampionChange]:
    """Return the changes of the champion, newest first: one JSON object a line of the tag."""
    lines = [line for line in _model_tags(name).get(tags.HISTORY, "").split("\n") if line]
    return [
        ChampionChange(**(json.loads(line) if line.startswith("{") else earlier_releases.champion_change(line)))
        for line in lines
    ]


def _model_tags(name: str) -> dict[str, str]:
    from mlflow import MlflowException

    try:
        return dict(store.patiently(store.client().get_registered_model, name).tags)
    except MlflowException:
        return {}


def _make_champion(
    new: VersionInfo, old: VersionInfo | None, why: str, by: str, lease: lock.Lease, verdict: str = ""
) -> VersionInfo:
    now = clock.stamp()
    before = old.version if old is not None else None
    promoting = json.dumps({"version": new.version, "by": by, "why": why, "before": before, "gate": verdict})
    # If the process is killed between these two writes, the old champion is also its own `previous`, and a rollback
    # reports that there is none.
    if old is not None:
        _set_alias(old, PREVIOUS, lease)
    lease.write(store.client().set_registered_model_tag, new.name, tags.PROMOTING, promoting)
    _set_alias(new, CHAMPION, lease)
    if registry.by_alias(new.name, ANCHOR) is None:
        _set_alias(old or new, ANCHOR)
        anchor.remember(new.name, (old or new).version)
    if CANDIDATE in new.aliases:
        store.patiently(store.client().delete_registered_model_alias, new.name, CANDIDATE)
    champion_tags = {tags.PROMOTED_AT: now, tags.PROMOTED_BY: why}
    if old is not None:
        champion_tags[tags.REPLACED] = str(old.version)
        registry.annotate(old.name, old.version, {tags.REPLACED_BY: f"{new.version} at {now}"})
    registry.annotate(new.name, new.version, champion_tags)
    audit.append(new.name, lease, "promoted", new.version, by=by, why=why, before=before, gate=verdict)
    _remember(new.name, new.version, why, at=now)
    return registry.version_info(new.name, new.version)


def _remember(name: str, version: int | None, why: str, at: str = "") -> None:
    """Add a change to the history; drop the oldest entries if the tag would become too long."""
    changes = [ChampionChange(at or clock.stamp(), version, why), *_changes(name)]
    lines = [json.dumps(asdict(change), ensure_ascii=False) for change in changes]
    while len("\n".join(lines)) > _LONGEST_HISTORY:
        lines.pop()
    store.patiently(store.client().set_registered_model_tag, name, tags.HISTORY, "\n".join(lines))
    _forget_promotion(name)


def _forget_promotion(name: str) -> None:
    if tags.PROMOTING in _model_tags(name):
        store.patiently(store.client().delete_registered_model_tag, name, tags.PROMOTING)


def _set_alias(info: VersionInfo, alias: str, lease: lock.Lease | None = None) -> None:
    """Set `alias` on a version; with `lease`, confirm at every try that the lock is still held."""
    call = store.patiently if lease is None else lease.write
    call(store.client().set_registered_model_alias, info.name, alias, str(info.version))


def _version_text(version: int | None) -> str:
    return "no champion" if version is None else f"version {version}"
