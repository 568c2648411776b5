"""Hallucinations: claims of an answer that its documents do not support, by category and severity (paper 369).

The documents of an answer are all texts that the policy was given: the prompt, its system message, and the responses of
the environment in an episode. Claims are read by rule, and each is compared with the claims of its category there:

    number     a numeral; its severity follows the relative distance to the nearest number of the documents
    time       a day, an hour, or a year after a word such as "in"; a year by the distance in years
    name       a capitalised name; by the share of its words that the documents have
    place      a name after "in", "at", "near", ..., or with a word such as "River"; as a name
    quote      three or more words in quotes; by the longest run of them that the documents have
    acronym    letters in brackets that are not the initials of the words before them; mild

    index = sum over claims of category weight * severity weight / sum over claims of category weight

A supported claim has the severity weight 0, so the index is in [0, 1]; it is 0 for an answer without claims. The
categories are those of HILT (arXiv 2310.04988): numeric nuisance, time wrap, generated golem, geographic erratum,
virtual voice and acronym ambiguity. The weighted share replaces the paper's Hallucination Vulnerability Index, which
ranks models by counts of human annotations. A rule sees no claim that is stated without such a word.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import NonNegativeFloat

from models.base.bounds import Share
from models.base.errors import UserError
from models.evaluation.records import Completion, PromptRecord, turns_of

if TYPE_CHECKING:
    from models.method.problem import Problem

Category = Literal["number", "time", "name", "place", "quote", "acronym"]
Severity = Literal["supported", "mild", "moderate", "alarming"]
CATEGORIES: tuple[Category, ...] = ("number", "time", "name", "place", "quote", "acronym")
SEVERITIES: tuple[Severity, ...] = ("supported", "mild", "moderate", "alarming")

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_QUOTE = re.compile(r"[\"“]([^\"“”\n]{1,400})[\"”]")
_ACRONYM = re.compile(r"((?:[A-Za-z][\w'-]* ){2,8})\(([A-Z]{2,8})\)")
_DAY = re.compile(rf"\b(?:(\d{{1,2}})(?:st|nd|rd|th)? ({_MONTHS})|({_MONTHS}) (\d{{1,2}})(?:st|nd|rd|th)?)\b(?!\d)")
_HOUR = re.compile(r"\b([01]?\d|2[0-3]):([0-5]\d)\b")
_YEAR = re.compile(r"(?<![\d.,])(1[0-9]{3}|20[0-9]{2})(?![\d%]|[.,]\d)")
_BEFORE_YEAR = re.compile(
    r"(?:\b(?:in|since|from|until|till|before|after|during|around|by|of|year|to|and)\s+|[(\u2013]"
    rf"|(?:{_MONTHS}),? (?:\d+,? )?)$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w])")
_NAME = re.compile(r"\b[A-Z][a-z][\w'-]*(?: (?:(?:of|de|von|van|the) )?[A-Z][\w'-]*)*")
_PLACE_BEFORE = re.compile(r"\b(?:in|at|near|into|across|throughout|outside|around)(?: the)? $", re.IGNORECASE)
_PLACE_WORDS = frozenset("City County River Lake Mount Mountains Island Islands Sea Ocean Street Province".split())
_SENTENCE = re.compile(r"(?:^|[.!?:;#\n]\s*|[\"“(]\s*)$")


@dataclass(frozen=True, kw_only=True)
class HallucinationSettings:
    """Guard of the hallucination index. Set under `gate.hallucination:`."""

    __pydantic_config__ = {"extra": "forbid", "allow_inf_nan": False}  # noqa: RUF012 - not a field
    categories: dict[Category, NonNegativeFloat] = field(default_factory=dict)
    """Weight of a category; 0 leaves it out. Default of each: 1."""
    mild: Share = 1 / 3
    """Weight of a claim that is almost supported."""
    moderate: Share = 2 / 3
    """Weight of a claim that is partly supported."""
    alarming: Share = 1.0
    """Weight of a claim without any support."""
    margin: NonNegativeFloat = 0.02
    """Largest allowed rise of the mean index."""

    def __post_init__(self) -> None:
        if not self.mild <= self.moderate <= self.alarming:
            raise UserError(
                f"gate.hallucination: mild {self.mild:g}, moderate {self.moderate:g}, alarming {self.alarming:g}; the "
                "weights of the severities must not fall"
            )

    def index(self, claims: Sequence[Claim]) -> float:
        """Return the weighted index of an answer's claims, in [0, 1]; 0 without claims."""
        severities = {"supported": 0.0, "mild": self.mild, "moderate": self.moderate, "alarming": self.alarming}
        weights = [self.categories.get(claim.category, 1.0) for claim in claims]
        total = sum(weights)
        lost = sum(weight * severities[claim.severity] for weight, claim in zip(weights, claims, strict=True))
        return lost / total if total else 0.0


@dataclass(frozen=True)
class Claim:
    """A claim of an answer, and its support in the documents."""

    category: Category
    text: str
    severity: Severity


def checked_claims(answer: str, documents: str) -> list[Claim]:
    """Return the claims of an answer in their order, each with its severity."""
    known = dict[Category, list[str]]()
    for category, text in _claims(documents):
        known.setdefault(category, []).append(text)
    words = _words(documents)
    return [Claim(category, text, _severity(category, text, known, words)) for category, text in _claims(answer)]


def with_claims(records: Sequence[PromptRecord], problems: Sequence[Problem]) -> list[PromptRecord]:
    """Return the records with the checked claims of each completion.

    Args:
        records: answers, [problems].
        problems: the answered problems, whose prompts are documents.
    """

    def measured(completion: Completion, problem: Problem) -> Completion:
        turns = turns_of(completion)
        documents = "\n".join([problem.system, problem.prompt, *(turn.response for turn in turns)])
        answer = "\n".join(turn.text for turn in turns) if turns else completion.text
        return replace(completion, claims=claims_to_json(checked_claims(answer, documents)))

    return [
        replace(
            record,
            greedy=measured(record.greedy, problem),
            samples=tuple(measured(sample, problem) for sample in record.samples),
        )
        for record, problem in zip(records, problems, strict=True)
    ]


def claims_to_json(claims: Sequence[Claim]) -> str:
    """Write claims as JSON, for `Completion.claims`."""
    return json.dumps([[claim.category, claim.text, claim.severity] for claim in claims])


def claims_of(completion: Completion) -> list[Claim] | None:
    """Return the claims of a completion; None if they were not checked."""
    return [Claim(*row) for row in json.loads(completion.claims)] if completion.claims else None


def hallucination_index(records: Sequence[PromptRecord], settings: HallucinationSettings) -> NDArray[np.float64]:
    """Compute the mean index of each prompt's samples, [prompts]; NaN if claims were not checked."""

    def of(sample: Completion) -> float:
        claims = claims_of(sample)
        return math.nan if claims is None else settings.index(claims)

    return np.array([np.mean([of(sample) for sample in record.samples]) for record in records])


def hallucinated_shares(records: Sequence[PromptRecord]) -> Mapping[str, float]:
    """Return the share of the samples' claims that are not supported, of each category and of each severity.

    The names are those of the categories and severities. A category without claims is left out.
    """
    claims = [claim for record in records for sample in record.samples for claim in claims_of(sample) or ()]
    shares: dict[str, float] = {}
    for category in CATEGORIES:
        own = [claim.severity != "supported" for claim in claims if claim.category == category]
        if own:
            shares[category] = sum(own) / len(own)
    for severity in SEVERITIES[1:]:
        if claims:
            shares[severity] = sum(claim.severity == severity for claim in claims) / len(claims)
    return shares


def _claims(text: str) -> Iterator[tuple[Category, str]]:
    """Yield the claims of a text in their order; a part of the text belongs to one claim only."""
    taken: list[tuple[int, int, Category, str]] = []

    def take(match: re.Match[str], category: Category, claim: str) -> None:
        start, end = match.span()
        if not any(start < other_end and other_start < end for other_start, other_end, _, _ in taken):
            taken.append((start, end, category, claim))

    for match in _QUOTE.finditer(text):
        if len(match[1].split()) >= 3:
            take(match, "quote", match[1])
    for match in _ACRONYM.finditer(text):
        take(match, "acronym", match[0])
    for match in _DAY.finditer(text):
        take(match, "time", f"{match[1] or match[4]} {match[2] or match[3]}")
    for match in _HOUR.finditer(text):
        take(match, "time", f"{int(match[1])}:{match[2]}")
    for match in _YEAR.finditer(text):
        if _BEFORE_YEAR.search(text, max(0, match.start() - 20), match.start()):
            take(match, "time", match[0])
    for match in _NUMBER.finditer(text):
        take(match, "number", match[0])
    for match in _NAME.finditer(text):
        begins = _SENTENCE.search(text, 0, match.start()) is not None
        if begins and " " not in match[0]:
            continue  # the capital of a sentence's first word marks no name
        before = text[max(0, match.start() - 20) : match.start()]
        place = _PLACE_BEFORE.search(before) or _PLACE_WORDS & set(match[0].split())
        take(match, "place" if place else "name", match[0])
    for _, _, category, claim in sorted(taken):
        yield category, claim


def _severity(category: Category, text: str, known: Mapping[Category, Sequence[str]], words: Sequence[str]) -> Severity:
    if category == "number":
        return _severity_of_number(_value(text), [_value(other) for other in _numerals(known)])
    if category == "time":
        return _severity_of_time(text, known)
    if category == "acronym":
        expansion, _, letters = text.rpartition("(")
        initials = "".join(word[0] for word in expansion.split()).upper()
        return "supported" if initials.endswith(letters.rstrip(")")) else "mild"
    own = _words(text)
    run = SequenceMatcher(None, own, words, autojunk=False).find_longest_match().size
    if run == len(own):
        return "supported"
    share = run / len(own) if category == "quote" else sum(word in words for word in own) / len(own)
    if category == "quote":
        return "mild" if share >= 0.8 else "moderate" if share >= 0.5 else "alarming"
    return "mild" if share >= 0.5 else "moderate" if share > 0 else "alarming"


def _severity_of_number(value: float, others: Sequence[float]) -> Severity:
    """Compare with the nearest number: at most 5 % of it away is mild, at most one half moderate."""
    distance = min((abs(value - other) / max(abs(other), 1e-9) for other in others), default=math.inf)
    if distance == 0:
        return "supported"
    return "mild" if distance <= 0.05 else "moderate" if distance <= 0.5 else "alarming"


def _severity_of_time(text: str, known: Mapping[Category, Sequence[str]]) -> Severity:
    """Compare years by their distance: 1 is mild, up to 10 moderate. Another day or hour is moderate."""
    times = known.get("time", ())
    if text in times:
        return "supported"
    if not text.isdigit():
        return "moderate" if times else "alarming"
    distance = min((abs(int(text) - int(other)) for other in times if other.isdigit()), default=1000)
    return "mild" if distance <= 1 else "moderate" if distance <= 10 else "alarming"


def _numerals(known: Mapping[Category, Sequence[str]]) -> list[str]:
    """Return the numerals of the documents; a year is a number too."""
    return [*known.get("number", ()), *(time for time in known.get("time", ()) if time.isdigit())]


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
