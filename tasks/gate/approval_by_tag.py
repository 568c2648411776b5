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
    sentences = []
    for name in registry.policy_names():
        for info in registry.versions(name):
            if DECISIONS.keys() & info.tags.keys() and approval.waits(info):
                sentences.append(_carry_out(info))
    return [sentence for sentence in sentences if sentence]


def word_of(decision_tags: Mapping[str, str]) -> TaggedDecision:
    """Parse the decision in a version's tags.

    Args:
        decision_tags: the tags `approve` and `reject` that are set.

    Raises:
        UserError: both are set, or the value is not `NAME: REASON`.
    """
    if len(decision_tags) > 1:
        raise UserError("both approve and reject are set: take one of them away")
    (key, value), *_ = decision_tags.items()
    by, colon, why = (part.strip() for part in value.partition(":"))
    if not (by and colon and why):
        raise UserError(f"{key}: {value!r} has no name or no reason; write `NAME: REASON`")
    return TaggedDecision(key, by, why)


def _carry_out(info: registry.VersionInfo) -> str:
    """Carry out the decision in a version's tags, or write the problem to another tag; return a sentence about it.

    Return "" if there is nothing new: the same problem was written before, or another process is at work.
    """
    decision_tags = {key: value for key, value in info.tags.items() if key in DECISIONS}
    decision_text = "; ".join(f"{key} = {value}" for key, value in sorted(decision_tags.items()))
    if info.tags.get(tags.PROBLEM, "").endswith(f"({decision_text})"):
        return ""
    label = f"{info.name} version {info.version}"
    try:
        decision = word_of(decision_tags)
        DECISIONS[decision.key](info.name, info.version, by=f"{decision.by}, {PAGE}", why=decision.why)
    except lock.LockHeldError:
        return ""  # next time
    except UserError as error:
        current = registry.version_info(info.name, info.version)
        if not approval.waits(current) or registry.CHAMPION in current.aliases:
            return ""  # another process was quicker
        problem = f"{str(error)[:LONGEST]} ({decision_text})"
        store.patiently(store.client().set_model_version_tag, info.name, str(info.version), tags.PROBLEM, problem)
        return f"{label}: {error}"
    for key in (*decision_tags, tags.PROBLEM):
        registry.delete_version_tag(info, key)
    return f"{label}: {decision.key} by {decision.by}, {PAGE}: {decision.why}"
