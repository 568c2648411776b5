"""The page of a registered version, rendered from its record."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.pages.version_page import version_page
from tasks.tracking import registry, tags
from tasks.tracking.verdict_record import PageFacts, hand_judgement_of, read_page, verdict_of


def annotate(info: registry.VersionInfo, facts: Mapping[str, str], *, origin: Mapping[str, str] | None = None) -> None:
    """Record facts about a registered version and update its page in MLflow, which shows them.

    Args:
        facts: the new facts; they replace those of the same names.
        origin: name -> recipe, data, run and the like, if the page is to show another origin.
    """
    page = PageFacts(origin=dict(origin)) if origin is not None else read_page(info)
    stored = {tags.PAGE: page.model_dump_json(), **facts}
    registry.annotate(info.name, info.version, stored)
    now = registry.version_info(info.name, info.version)
    known = registry.facts_of(now)
    text = version_page(info.uri, page, verdict_of(known), hand_judgement_of(known), known.get(tags.REPRODUCED, ""))
    registry.annotate(info.name, info.version, description=text)
