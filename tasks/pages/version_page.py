"""The pages of registered models and of their versions in MLflow, in Markdown.

Pure functions from plain data to text.
"""

from __future__ import annotations

from tasks.pages.description import cell, code, comparison, fact, fenced, section
from tasks.tracking.verdict_record import HandJudgement, PageFacts, VerdictRecord
from tasks.tracking.verdict_text import (
    baseline_text,
    difference_text,
    hand_text,
    headline,
    reason_text,
    ruling_text,
)

LONGEST = 5000
"""Maximum number of characters of a version's description in a registry on PostgreSQL."""
_RULE = "\n\n---\n\n"
"""Separator between later decisions and the page about the gate's verdict."""


def version_page(
    address: str,
    facts: PageFacts,
    verdict: VerdictRecord | None = None,
    by_hand: HandJudgement | None = None,
    reproduced: str = "",
) -> str:
    """Render the page of a policy's version: newest decision first, then the verdict, then its origin.

    Args:
        address: `models:/NAME/VERSION`.
        verdict: the gate's verdict on it as a candidate, None if there is none.
        by_hand: the gate's judgement if a person made it champion.
        reproduced: whether it came out the same when it was trained again, in one sentence.
    """
    parts = [_hand_section(by_hand), _ruling_line(verdict), _verdict_and_origin(address, facts, verdict)]
    page = _RULE.join(filter(None, parts))
    if reproduced:
        page = "\n\n".join(filter(None, [page.rstrip(), section("Trained again", cell(reproduced))]))
    return page if len(page) <= LONGEST else f"{page[: LONGEST - 2]} …"


def _verdict_and_origin(address: str, facts: PageFacts, verdict: VerdictRecord | None) -> str:
    """Render headline, reason, checks and origin; for a version of an earlier release, its existing page."""
    parts = []
    if verdict is not None and (facts.origin or verdict.ruling is not None):
        # No mark-up: the list of versions shows the page's first line as plain text.
        first = ": ".join(filter(None, [headline(verdict), difference_text(verdict)]))
        parts = [f"{first} against {baseline_text(verdict.champion)}"]
    if facts.earlier_page:
        return "\n\n".join([*parts, facts.earlier_page])
    if verdict is not None and parts:
        parts += [cell(reason_text(verdict)), section("Gate", comparison(verdict))]
    if facts.origin:
        shown = "\n".join(f"- {cell(key)}: {_linked(value)}" for key, value in facts.origin.items() if value)
        parts += [section("Where it comes from", shown), section("Load it", _how_to_load(address))]
    return "\n\n".join(filter(None, parts))


def _ruling_line(verdict: VerdictRecord | None) -> str:
    if verdict is None or verdict.ruling is None:
        return ""
    return " ".join(ruling_text(verdict.ruling).split())


def _hand_section(by_hand: HandJudgement | None) -> str:
    if by_hand is None:
        return ""
    first = f"Champion by hand: {' '.join(hand_text(by_hand).split())}"
    if by_hand.verdict is None:
        return first
    return "\n\n".join([first, section(f"The gate, against version {by_hand.champion}", comparison(by_hand.verdict))])


def policy_page(recipe: str, name: str) -> str:
    """Render the page of a registered policy."""
    return (
        f"Policies that the recipe {code(recipe)} trained, a version for each that came out with new weights.\n\n"
        "- `champion`: the version in use; a candidate takes its place only through the gate, or by a person's hand\n"
        "- `previous`: the champion before, to which `rewardflow rollback` returns\n"
        "- `candidate`: the newest that was judged\n"
        "- `anchor`: the first champion, or the one that a person named; guards are compared with it too\n\n"
        f"{_how_to_load(f'models:/{name}@champion')}"
    )


def reward_model_page(recipe: str) -> str:
    """Render the page of a registered reward model."""
    return (
        f"Reward models of the recipe {code(recipe)}: a text classifier with one label, whose logit scores a "
        "completion relative to others of the same prompt. Policies name the version that they were trained against."
    )


def _how_to_load(address: str) -> str:
    return fenced(
        f'import mlflow\nmlflow.transformers.load_model("{address}")   # a transformers pipeline\n'
        f'folder = mlflow.artifacts.download_artifacts("{address}/model")   # for from_pretrained and vLLM',
        "python",
    )


def _linked(value: str) -> str:
    """Return text unchanged if it is a Markdown link; format it as a fact otherwise."""
    return value if value.startswith("[") else fact(value)
