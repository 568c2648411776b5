"""The gate's verdict on a policy version as typed data, stored on the version.

The decision is a tag, which searches and lists read. The whole record is JSON in the version's record file. Sentences
are rendered from it by `tasks.tracking.verdict_text` and are never parsed. Versions of earlier releases have a sentence
instead: `tasks.tracking.earlier_releases` converts it when such a version is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from models.evaluation.bootstrap import Interval
from models.evaluation.gate.budget import Look
from models.evaluation.gate.checks import GateCheck
from tasks.tracking import earlier_releases, registry, tags

Decision = Literal["promoted", "kept", "refused", "waiting"]
Reason = Literal["better", "not_better", "guard_failed", "training_failed", "not_pinned", "approved", "rejected"]
"""Why the decision was made. `better` with the decision `waiting`: the recipe requires a person's approval."""


class _Typed(BaseModel):
    """Data that is stored as JSON; numbers that are not finite are written as text."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")


class Ruling(_Typed):
    """A person's approval or rejection of a candidate."""

    approved: bool
    by: str
    why: str
    at: str
    """UTC, to the minute."""


class VerdictRecord(_Typed):
    """The gate's decision on a policy version, with its grounds."""

    decision: Decision
    reason: Reason
    metric: str = ""
    """Metric of the recipe's gate."""
    champion: int | None = None
    """Version that it was compared with; None: the base model."""
    difference: Interval | None = None
    """Candidate minus the policy that it was compared with, on `metric`."""
    confidence: float = 0.95
    """Confidence of the interval of `difference`."""
    checks: tuple[GateCheck, ...] = ()
    detectable: float = math.nan
    """Smallest true difference that the comparison would have found with 80 % power; NaN if unknown."""
    look: Look | None = None
    grounds: str = ""
    """Digest of the gate's settings and of the candidate's answers; "" in records of earlier releases."""
    cause: str = ""
    """Why the training failed, or why no commit contains the run's code and data; for these two reasons only."""
    ruling: Ruling | None = None
    earlier_text: str = ""
    """The gate's reason as an earlier release wrote it; replaces the rendered one."""


class HandJudgement(_Typed):
    """The gate's judgement of a version that a person made champion."""

    version: int
    champion: int | None = None
    """The champion before, which the version was compared with."""
    verdict: VerdictRecord | None = None
    problem: str = ""
    """Why the gate did not judge the version; empty if there is a verdict."""


class PageFacts(_Typed):
    """Data of a version's page other than its verdict."""

    origin: dict[str, str] = {}
    """Name -> recipe, data, run and the like."""
    earlier_page: str = ""
    """The page of an earlier release, in Markdown, shown below all newer facts."""


def read_verdict(info: registry.VersionInfo) -> VerdictRecord | None:
    """Return the gate's verdict on a version, None if the gate has not judged it as a candidate."""
    return verdict_of(registry.facts_of(info))


def verdict_of(facts: Mapping[str, str]) -> VerdictRecord | None:
    """Return the gate's verdict in the facts of a version, None if the gate has not judged it as a candidate."""
    if text := facts.get(tags.VERDICT_RECORD):
        return VerdictRecord.model_validate_json(text)
    earlier = earlier_releases.convert(facts)
    return VerdictRecord.model_validate(earlier) if earlier is not None else None


def hand_judgement_of(facts: Mapping[str, str]) -> HandJudgement | None:
    """Return the judgement of a champion that was set by hand; None without one, or with one of an earlier release."""
    text = facts.get(tags.BY_HAND, "")
    return HandJudgement.model_validate_json(text) if text.startswith("{") else None


def read_page(info: registry.VersionInfo) -> PageFacts:
    """Return the data of a version's page; for a version without them, its existing page."""
    facts = registry.facts_of(info)
    if text := facts.get(tags.PAGE):
        return PageFacts.model_validate_json(text)
    return PageFacts(earlier_page=earlier_releases.page_below_headline(info.description, facts))


def decided(info: registry.VersionInfo) -> Decision | None:
    """Return the decision on a version from its tags, without reading its record; None if there is none."""
    if tags.DECISION in info.tags:
        return info.tags[tags.DECISION]  # type: ignore[return-value]
    return earlier_releases.decision_of(info.tags)


def store_decision(info: registry.VersionInfo, decision: Decision) -> None:
    """Set the tag with the decision on a version, whose verdict record must be stored; delete an old release's tag."""
    registry.annotate(info.name, info.version, {tags.DECISION: decision})
    if earlier_releases.VERDICT in info.tags:
        registry.delete_version_tag(info, earlier_releases.VERDICT)
