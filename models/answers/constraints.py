"""Constraints on a text that a program can check, in the manner of IFEval (arXiv 2311.07911).

    words at_least 20 | words at_most 50 | sentences exactly 3 | paragraphs exactly 2 | bullets at_least 3
    contains red, twice at least | forbids blue | starts good morning | ends stop | lower | upper | no_commas | title
    json with keys a, b

Words are separated by white space; they are compared without regard to case and to the punctuation around them. A title
is written in double angle brackets. JSON may be inside a Markdown code block.

Every check takes any text, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from models.answers.hidden import Hidden

Kind = Literal[
    "words", "sentences", "paragraphs", "bullets", "contains", "forbids", "starts", "ends", "lower", "upper",
    "no_commas", "json", "title",
]  # fmt: skip
COUNTED = ("words", "sentences", "paragraphs", "bullets", "contains")
ABOUT = ("contains", "forbids", "starts", "ends")
LONGEST_JSON = 100_000
"""Length in characters beyond which a text does not count as JSON."""

_SENTENCE = re.compile(r"[^.!?\s][^.!?]*")
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n(?!\s*\n)[^\n]*)*")
_BULLET = re.compile(r"^[ \t]*[-*] +\S", re.MULTILINE)
_TITLE = re.compile(r"<<([^<>\n]+)>>")
_FENCED = re.compile(r"```(?:json)?\n(.*)\n```", re.DOTALL | re.IGNORECASE)


class Constraint(Hidden):
    """A single constraint."""

    kind: Kind
    text: str = ""
    """Text that is contained, forbidden, or required at the start or end."""
    least: Annotated[int, Field(ge=0)] = 0
    """Smallest count."""
    most: Annotated[int, Field(ge=0)] | None = None
    """Largest count; None: any number."""
    keys: tuple[str, ...] = ()
    """Keys that the JSON object must have, others allowed; empty: any JSON value."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.kind in ABOUT) != bool(self.text.split()):
            raise ValueError(f"{self.kind}: text is {'missing' if self.kind in ABOUT else 'not a setting of it'}")
        if self.kind not in COUNTED and (self.least or self.most is not None):
            raise ValueError(f"{self.kind}: nothing is counted")
        if self.most is not None and self.most < self.least:
            raise ValueError(f"{self.kind}: least is {self.least}, more than most, {self.most}")
        if self.keys and self.kind != "json":
            raise ValueError(f"{self.kind}: keys are for json only")
        return self


class Constraints(Hidden):
    """Constraints that a text must meet."""

    constraints: Annotated[tuple[Constraint, ...], Field(min_length=1)]


def met(text: str, constraints: Constraints) -> list[bool]:
    """Return which constraints a text meets, [constraints]. A text without a word meets none."""
    words = _words(text)
    if not any(words):
        return [False] * len(constraints.constraints)
    return [_CHECKS[each.kind](text, words, each) for each in constraints.constraints]


def _words(text: str) -> list[str]:
    return [word.strip(".,;:!?\"'()*").casefold() for word in text.split()]


def _between(count: int, constraint: Constraint) -> bool:
    return constraint.least <= count and (constraint.most is None or count <= constraint.most)


def _occurrences(words: list[str], phrase: list[str]) -> int:
    starts = (place for place, word in enumerate(words) if word == phrase[0])
    return sum(words[place : place + len(phrase)] == phrase for place in starts)


def _contains(text: str, words: list[str], constraint: Constraint) -> bool:
    count = _occurrences(words, _words(constraint.text))
    return count >= max(1, constraint.least) and (constraint.most is None or count <= constraint.most)


def _starts(text: str, words: list[str], constraint: Constraint) -> bool:
    phrase = _words(constraint.text)
    return words[: len(phrase)] == phrase


def _ends(text: str, words: list[str], constraint: Constraint) -> bool:
    phrase = _words(constraint.text)
    return words[-len(phrase) :] == phrase


def _json(text: str, words: list[str], constraint: Constraint) -> bool:
    if len(text) > LONGEST_JSON:
        return False
    fenced = _FENCED.fullmatch(text.strip())
    try:
        value = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError):
        return False
    return not constraint.keys or (isinstance(value, dict) and value.keys() >= set(constraint.keys))


def _title(text: str, words: list[str], constraint: Constraint) -> bool:
    return any(title.strip() for title in _TITLE.findall(text))


_CHECKS: dict[Kind, Callable[[str, list[str], Constraint], bool]] = {
    "words": lambda text, words, constraint: _between(len(words), constraint),
    "sentences": lambda text, words, constraint: _between(len(_SENTENCE.findall(text)), constraint),
    "paragraphs": lambda text, words, constraint: _between(len(_PARAGRAPH.findall(text)), constraint),
    "bullets": lambda text, words, constraint: _between(len(_BULLET.findall(text)), constraint),
    "contains": _contains,
    "forbids": lambda text, words, constraint: not _occurrences(words, _words(constraint.text)),
    "starts": _starts,
    "ends": _ends,
    "lower": lambda text, words, constraint: text == text.lower(),
    "upper": lambda text, words, constraint: text == text.upper(),
    "no_commas": lambda text, words, constraint: "," not in text,
    "json": _json,
    "title": _title,
}
