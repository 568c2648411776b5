"""A person's approval or rejection of a waiting candidate, entered in MLflow's UI as a tag of the version.

    approve = ann: samples read, no complaints
    reject  = bob: answers in the wrong language

The registry is authoritative. `apply_decisions` is called after a webhook or once a minute and always reads the current
tags, so a lost or repeated call does no harm. A decision that is carried out is recorded in the audit log and its tag
is deleted. If it cannot be carried out, another tag states the problem, and it is not tried again until it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.base.errors import UserError
from tasks.gate import approval
from tasks.tracking import lock, registry, store, tags

DECISIONS: Mapping[str, Callable[..., object]] = {"approve": approval.approve, "reject": approval.reject}
"""Key of the tag -> function that carries out the decision."""
PAGE = "on MLflow's page"
LONGEST = 1000
"""Maximum number of characters of an error message in the tag that reports a problem."""


@dataclass(frozen=True)
class TaggedDecision:
    """A person's decision, as parsed from a tag of a version."""

    key: str
    """Key of the tag."""
    by: str
    why: str


def apply_decisions() -> list[str]:
    """Carry out the decisions in the tags of all waiting policy versions; return one sentence for each.

    Raises:
        UserError: the registry cannot be read or written.
    """
    said = []
    for name in registry.policy_names():
        for info in registry.versions(name):
            if DECISIONS.keys() & info.tags.keys() and approval.waits(info):
                said.append(_answer(info))
    return [sentence for sentence in said if sentence]


def word_of(written: Mapping[str, str]) -> TaggedDecision:
    """Parse the decision in a version's tags.

    Args:
        written: the tags `approve` and `reject` that are set.

    Raises:
        UserError: both are set, or the value is not `NAME: REASON`.
    """
    if len(written) > 1:
        raise UserError("both approve and reject are set: take one of them away")
    (key, value), *_ = written.items()
    by, colon, why = (part.strip() for part in value.partition(":"))
    if not (by and colon and why):
        raise UserError(f"{key}: {value!r} has no name or no reason; write `NAME: REASON`")
    return TaggedDecision(key, by, why)


def _answer(info: registry.VersionInfo) -> str:
    """Carry out the decision in a version's tags, or write the problem to another tag; return a sentence about it.

    Return "" if there is nothing new: the same problem was written before, or another process is at work.
    """
    written = {key: value for key, value in info.tags.items() if key in DECISIONS}
    asked = "; ".join(f"{key} = {value}" for key, value in sorted(written.items()))
    if info.tags.get(tags.PROBLEM, "").endswith(f"({asked})"):
        return ""
    named = f"{info.name} version {info.version}"
    try:
        word = word_of(written)
        DECISIONS[word.key](info.name, info.version, by=f"{word.by}, {PAGE}", why=word.why)
    except lock.LockHeldError:
        return ""  # next time
    except UserError as error:
        now = registry.version_info(info.name, info.version)
        if not approval.waits(now) or registry.CHAMPION in now.aliases:
            return ""  # another process was quicker
        problem = f"{str(error)[:LONGEST]} ({asked})"
        store.patiently(store.client().set_model_version_tag, info.name, str(info.version), tags.PROBLEM, problem)
        return f"{named}: {error}"
    for key in (*written, tags.PROBLEM):
        registry.delete_version_tag(info, key)
    return f"{named}: {word.key} by {word.by}, {PAGE}: {word.why}"
