"""Restoration of an anchor that was deleted outside Rewardflow: without it, losses within the margins would add up.

An alias keeps no history, so the version that has `anchor` is also recorded in a tag of the registered model. If a
person moved the alias to another version, that version is accepted. A deleted alias is set again on the recorded
version or, if that version was deleted, on the oldest champion that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from models.base.errors import UserError
from tasks.tracking import lock, registry, store, tags
from tasks.tracking.registry import ANCHOR


def remember(name: str, version: int) -> None:
    """Record in a tag of the model which version has the alias `anchor`."""
    registry.set_model_tag(name, tags.ANCHORED, str(version))


def changed(name: str, champions: Sequence[int]) -> bool:
    """Return whether the alias `anchor` differs from Rewardflow's record of it.

    Args:
        champions: versions that were champion, oldest first.
    """
    there, noted = registry.by_alias(name, ANCHOR), _noted(name)
    if there is None:
        return noted is not None or bool(champions)
    return there.version != noted


def record_outside_changes(name: str, champions: Sequence[int], lease: lock.Lease) -> str:
    """Record an anchor that a person set, or restore one that was deleted; the caller must hold the promotion lock.

    Returns:
        What was done, in one sentence; empty if there is nothing to report.
    """
    if not changed(name, champions):
        return ""
    there, noted = registry.by_alias(name, ANCHOR), _noted(name)
    if there is not None:
        remember(name, there.version)
        moved = f"version {there.version} was made anchor outside Rewardflow, instead of version {noted}"
        return "" if noted is None else moved
    first = _first_left(name, [noted, *champions] if noted else champions)
    if first is not None:
        lease.write(store.client().set_registered_model_alias, name, ANCHOR, str(first))
        remember(name, first)
    if noted is None:
        given = f"no version had the alias anchor; version {first}, the first champion on record, has it now"
        return "" if first is None else given
    if first == noted:
        return f"the alias anchor was deleted outside Rewardflow; version {noted} has it again"
    instead = f"version {first}, the oldest champion left, is the anchor now" if first else "no champion is left for it"
    return f"version {noted}, the anchor, was deleted; {instead} (`rewardflow anchor VERSION` names another)"


def _noted(name: str) -> int | None:
    there = registry.model_tags(name).get(tags.ANCHORED, "")
    return int(there) if there else None


def _first_left(name: str, versions: Sequence[int]) -> int | None:
    """Return the first of these versions that was not deleted, None if all were."""
    for version in versions:
        with suppress(UserError):
            return registry.version_info(name, version).version
    return None
