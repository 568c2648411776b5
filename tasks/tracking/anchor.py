"""The anchor that was deleted outside Rewardflow is restored: without it, losses within the margins would add up.

The alias `anchor` keeps no memory, so the version that has it also stands in a tag of the registered model. An alias
that a person moved to another version holds. One that is gone goes back to that version; where the version itself was
deleted, to the oldest champion that is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from models.errors import UserError
from tasks.tracking import lock, registry, store, tags
from tasks.tracking.registry import ANCHOR


def remember(name: str, version: int) -> None:
    """Write down which version has the alias."""
    registry.set_model_tag(name, tags.ANCHORED, str(version))


def changed(name: str, champions: Sequence[int]) -> bool:
    """Whether the alias is not where Rewardflow last knew it.

    Args:
        champions: versions that were champion, the first one first.
    """
    there, noted = registry.by_alias(name, ANCHOR), _noted(name)
    if there is None:
        return noted is not None or bool(champions)
    return there.version != noted


def notice(name: str, champions: Sequence[int], lease: lock.Lease) -> str:
    """Take over an anchor that a person named, restore one that is gone. To be called under the promotion lock.

    Returns:
        What was done, in one sentence; empty where nothing was that a person need know.
    """
    if not changed(name, champions):
        return ""
    there, noted = registry.by_alias(name, ANCHOR), _noted(name)
    if there is not None:
        remember(name, there.version)
        moved = f"version {there.version} was made anchor outside Rewardflow, in place of version {noted}"
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
    """The first of these versions that was not deleted."""
    for version in versions:
        with suppress(UserError):
            return registry.version_info(name, version).version
    return None
