"""Conversion of verdicts and histories of champions that earlier releases stored as sentences.

They wrote the tag `rewardflow.verdict` as "DECISION: REASON", a fact "STATE: NUMBERS" for each check, and a line of
text for each champion. This is the only module that parses such sentences. New versions have none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from tasks.tracking import tags

VERDICT = "rewardflow.verdict"
WORD = "rewardflow.word"
GATE = "rewardflow.gate."
_DECISIONS = ("promoted", "kept", "refused", "waiting")
_NUMBER = r"([+-]?(?:\d+(?:\.\d+)?|inf|nan))"
_IMPROVEMENT = re.compile(rf"(\w+) {_NUMBER} \[{_NUMBER}, {_NUMBER}\]")
_WORD = re.compile(r"(?P<what>Approved|Rejected) by (?P<by>.*?): (?P<why>.*) \((?P<at>[^()]* UTC)\)", re.DOTALL)
_RULED = re.compile(r"^(?:approved|rejected) by .*?; the gate: ", re.DOTALL)
_CHANGE = re.compile(r"(?P<at>.*? UTC) (?:version (?P<version>\d+)|no champion) \((?P<why>.*)\)", re.DOTALL)
_ASKS = "; the recipe asks for a person's approval"
_NOT_PINNED = "not pinned, so nobody could reproduce it"
_WAITS = "… Waiting for approval"
_RULINGS = ("Approved by ", "Rejected by ")
_RULE = "\n\n---\n\n"
_REPRODUCED = "\n\n### Trained again\n\n"


def decision_of(facts: Mapping[str, str]) -> Any:
    """Return the decision in the sentence of an earlier release; None without such a sentence."""
    decision = facts.get(VERDICT, "").partition(": ")[0]
    return decision if decision in _DECISIONS else None


def convert(facts: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the fields of a `VerdictRecord` from the facts of an earlier release; None without a verdict."""
    decision = decision_of(facts)
    if decision is None:
        return None
    text = facts[VERDICT].partition(": ")[2]
    ruling = _ruling(facts.get(WORD, ""))
    judged_against = facts.get(tags.JUDGED_AGAINST, "")
    fields: dict[str, Any] = {
        "decision": decision,
        "reason": _reason(decision, text, ruling),
        "champion": int(judged_against) if judged_against else None,
        "checks": _checks(facts),
        "ruling": ruling,
        "earlier_text": _RULED.sub("", text).partition(_ASKS)[0],
    }
    if known := _IMPROVEMENT.fullmatch(facts.get(tags.IMPROVEMENT, "")):
        names = ("estimate", "low", "high")
        fields |= {"metric": known[1], "difference": dict(zip(names, map(float, known.groups()[1:]), strict=True))}
    return fields


def page_below_headline(page: str, facts: Mapping[str, str]) -> str:
    """Return the page of an earlier release without the parts that are rendered from its facts.

    These are a reproduction, a person's ruling, and the headline of a candidate that waits or was ruled on.
    """
    page = page.partition(_REPRODUCED)[0].rstrip()
    if _ruling(facts.get(WORD, "")) is not None and page.startswith(_RULINGS):
        return page.partition(_RULE)[2].partition("\n\n")[2]
    return page.partition("\n\n")[2] if page.startswith(_WAITS) else page


def run_page_below_verdict(page: str) -> str:
    """Return the page of a run of an earlier release without its verdict: everything from the first section onwards."""
    _, heading, rest = page.partition("\n\n### ")
    return f"### {rest}" if heading else ""


def champion_change(line: str) -> dict[str, Any]:
    """Return the fields of a change of the champion from a line of the history of an earlier release."""
    known = _CHANGE.fullmatch(line)
    if known is None:
        return {"at": "", "version": None, "why": line}
    return {"at": known["at"], "version": int(known["version"]) if known["version"] else None, "why": known["why"]}


def _reason(decision: str, text: str, ruling: Mapping[str, Any] | None) -> str:
    if ruling is not None and decision in ("promoted", "refused"):
        return "approved" if ruling["approved"] else "rejected"
    if decision == "kept":
        return "not_better"
    if decision == "refused":
        return "not_pinned" if text.startswith(_NOT_PINNED) else "guard_failed"
    return "better"


def _ruling(word: str) -> dict[str, Any] | None:
    known = _WORD.fullmatch(word)
    if known is None:
        return None
    return {"approved": known["what"] == "Approved", **{name: known[name] for name in ("by", "why", "at")}}


def _checks(facts: Mapping[str, str]) -> list[dict[str, Any]]:
    checks = []
    for key in sorted(facts):
        if key.startswith(GATE):
            state, _, detail = facts[key].partition(": ")
            numbers = {"value": math.nan, "bound": math.nan}
            checks.append(
                {"name": key.removeprefix(GATE), "state": state.replace(" ", "_"), "detail": detail, **numbers}
            )
    return checks
