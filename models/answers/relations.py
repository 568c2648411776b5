"""Answers in the form of a relation, and the pairs of them to compare with the expected one.

    x = 5 for 5, and for x = 5        the values are compared; y = 5 is another answer than x = 5
    2x + 6 = 2(x + 3) for 2x + 6      every side must be the same as the expected answer, so 7 = 2x + 6 is not
    x = 6, y = 5 for x = 6, y = 5     value by value
    1 = 2 = x, x \\approx 5           refused, unless the expected answer is of this form: then side by side

Values are not names: a name is a variable, a function of variables, or words, and contains no number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from models.answers.numerals import numeral

Pair = tuple[str, str]
"""Given answer and expected answer."""

_MARKS = {
    "le": "≤", "leq": "≤", "leqslant": "≤", "ge": "≥", "geq": "≥", "geqslant": "≥", "lt": "<", "gt": ">", "ne": "≠",
    "neq": "≠", "in": "∈", "<=": "≤", ">=": "≥", "!=": "≠",
}  # fmt: skip
_ORDER = frozenset("<>≤≥")
_TOKEN = re.compile(
    r"(?P<between>\\(?:q?quad|lor|land|wedge|vee)(?![A-Za-z])|\\\\|\\(?:text|mbox|mathrm) ?\{ ?(?:and|or) ?\}|;"
    r"|(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|(?<![0-9]),|,(?![0-9]{3}(?![0-9])))"
    r"|(?P<relation>\\(?:leq?(?:slant)?|geq?(?:slant)?|lt|gt|neq?|in|notin|approx|equiv|sim|simeq|cong|propto|to|"
    r"rightarrow|Rightarrow|Leftrightarrow|leftrightarrow|implies|iff|mapsto|subset|subseteq|doteq)(?![A-Za-z])"
    r"|:=|!=|<=|>=|=>|->|[<>=:≈≠≤≥≡∈→⇒∼≅])"
    r"|(?P<open>\\\{|[({\[])|(?P<close>\\\}|[)}\]])|\\[A-Za-z]+|\\.|.",
    re.DOTALL,
)
_NAME = re.compile(
    r"(?:\\(?:angle|overline|text|mathrm|operatorname|vec|mathbf|triangle|hat|bar) ?)?"
    r"(?:\{ ?[A-Za-z][A-Za-z ]{0,30}\}|[A-Za-z]{1,12}(?: [A-Za-z]{1,12}){0,3}|\\(?!pi)[a-z]{2,10})"
    r" ?(?:_(?:[A-Za-z0-9]|\{[A-Za-z0-9, ]{1,12}\}))? ?'{0,3} ?(?:\( ?[A-Za-z](?: ?, ?[A-Za-z]){0,3} ?\))?"
    r"|\\frac ?\{d[A-Za-z]\} ?\{d[A-Za-z]\}"
)
_COMMAND = re.compile(r"\\(?:text|mathrm|mbox) ?\{[^{}]*\}|\\[A-Za-z]+")
_SEVERAL = re.compile(r"\\\{|\\pm|±|\\mp|\\begin|\\cup|∪|,|;|\bor\b|\band\b|[<>≤≥≠]|\\(?:leq?|geq?|neq?)(?![a-z])")
_WORDS_BETWEEN = re.compile(r"\\(?:text|mbox) ?\{(?! ?(?:and|or) ?\})[^{}]*\}(?! ?\^? ?\{?[0-9]?\}? ?$)")
"""Words in the middle of the mathematics, unlike a unit at its end: the text after them would not be read."""
_CONNECTED = re.compile(r"\\(?:text|mbox|mathrm) ?\{ ?(and|or) ?\}")
_TUPLE = re.compile(r"\(.*\)", re.DOTALL)


@dataclass(frozen=True)
class RelationChain:
    """A part of a list: the sides of its relations, and the relations."""

    sides: tuple[str, ...]
    relations: tuple[str, ...]

    @property
    def named(self) -> Pair | None:
        """Name and value, if it gives a value to a single name."""
        if self.relations != ("=",):
            return None
        left, right = self.sides
        if _NAME.fullmatch(left):
            return left.replace(" ", ""), right
        return (right.replace(" ", ""), left) if _NAME.fullmatch(right) else None


def stated_pairs(given: str, expected: str) -> list[Pair]:
    """Return the pairs that must all be the same for `given` to be right; empty if its form is wrong.

    `(6, 5)` for `x = 6, y = 5` is compared unchanged.
    """
    given, expected = _clean(given), _clean(expected)
    given_parts, expected_parts = list_parts(given), list_parts(expected)
    if len(given_parts) > 1 and len(expected_parts) == 1 and not _SEVERAL.search(expected):
        return []
    if "\\text" not in expected and any(match.start() for match in _WORDS_BETWEEN.finditer(given)):
        return []
    if any(map(_is_chain, given_parts)) or (
        any(map(_is_chain, expected_parts)) and any(part.relations for part in given_parts)
    ):
        return _pairs_side_by_side(given_parts, expected_parts)
    values = _values(expected_parts)
    if values is not None and len(values) > 1:
        return _pairs_by_name(given_parts, values, given, expected)
    if not any(part.relations for part in given_parts):
        return [(given, values.popitem()[1] if values else expected)]
    if len(given_parts) == 1:
        return _pairs_of_one(given_parts[0], expected_parts, given, expected)
    return _pairs_of_list(given_parts, expected_parts, given, expected)


def list_parts(text: str) -> list[RelationChain]:
    """Return the parts of a list and their relations.

    Commas, semicolons, `and` and `or` outside brackets separate the parts.
    """
    parts, sides, relations, start, depth = [], [], [], 0, 0
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth > 0 or kind not in ("between", "relation"):
            continue
        side = text[start : token.start()].strip()
        start = token.end()
        sides.append(side)
        if kind == "relation":
            mark = token[0].lstrip("\\")
            relations.append(_MARKS.get(mark, mark))
        else:
            parts.append(RelationChain(tuple(sides), tuple(relations)))
            sides, relations = [], []
    parts.append(RelationChain((*sides, text[start:].strip()), tuple(relations)))
    return [part for part in parts if any(part.sides)]


def _clean(text: str) -> str:
    text = _CONNECTED.sub(r" \1 ", text)
    text = " ".join(text.replace("$", " ").replace("\\(", " ").replace("\\)", " ").split()).rstrip(".")
    inside = text.removeprefix("\\boxed{")
    return inside[:-1].strip() if inside != text and inside.endswith("}") and "\\boxed" not in inside else text


def _is_chain(part: RelationChain) -> bool:
    """Return whether a part is a chain: more than an equation, a membership, an order or a range.

    That is a part with three or more relations, with two that are not both orders, or with one of another kind.
    """
    if len(part.relations) < 2:
        return bool(part.relations) and part.relations[0] not in {"=", "∈", *_ORDER}
    return len(part.relations) > 2 or not _ORDER.issuperset(part.relations)


def _pairs_side_by_side(given_parts: list[RelationChain], expected_parts: list[RelationChain]) -> list[Pair]:
    if [part.relations for part in given_parts] != [part.relations for part in expected_parts]:
        return []
    return [
        pair
        for left, right in zip(given_parts, expected_parts, strict=True)
        for pair in zip(left.sides, right.sides, strict=True)
    ]


def _values(parts: list[RelationChain]) -> dict[str, str] | None:
    """Return values by name, if every part gives a value to a name, and each name has only one; otherwise None."""
    named = [part.named for part in parts]
    values = dict(each for each in named if each is not None)
    return values if len(values) == len(parts) else None


def _pairs_by_name(given_parts: list[RelationChain], values: dict[str, str], given: str, expected: str) -> list[Pair]:
    if _TUPLE.fullmatch(given):
        return [(given, expected)]
    named = _values(given_parts) or {}
    return [(named[name], values[name]) for name in values] if named.keys() == values.keys() else []


def _pairs_of_one(
    given_part: RelationChain, expected_parts: list[RelationChain], given: str, expected: str
) -> list[Pair]:
    name = given_part.named
    if given_part.relations == ("∈",) and _NAME.fullmatch(given_part.sides[0]):
        name = (given_part.sides[0].replace(" ", ""), given_part.sides[1])
    bare = not any(part.relations for part in expected_parts)
    if name is None:
        if bare and given_part.relations == ("=",):
            return [(side, expected) for side in given_part.sides]
        return [] if _only_value(expected_parts) else [(given, expected)]
    if bare:
        return [] if _is_variable_of(name[0], expected) else [(name[1], expected)]
    values = _values(expected_parts)
    if values is not None and given_part.relations == ("=",) and name[0] in values:
        return [(name[1], values[name[0]])]
    return [] if _only_value(expected_parts) else [(given, expected)]


def _pairs_of_list(
    given_parts: list[RelationChain], expected_parts: list[RelationChain], given: str, expected: str
) -> list[Pair]:
    equations = [part for part in given_parts if part.relations == ("=",)]
    names = [part.named[0] for part in equations if part.named is not None]
    if len(names) != len(equations):
        return []
    if any(part.relations for part in expected_parts):
        expected_names = {part.named[0] for part in expected_parts if part.named is not None}
        return [(given, expected)] if not names or set(names) == expected_names else []
    in_order = len(set(names)) == len(names) and names == sorted(names) and bool(_TUPLE.fullmatch(expected))
    return [(given, expected)] if len(set(names)) < 2 or in_order else []


def _only_value(expected_parts: list[RelationChain]) -> bool:
    """Return whether a name has a value without variables: an equation with that solution is then not an answer."""
    values = _values(expected_parts)
    return values is not None and len(values) == 1 and not _letters(next(iter(values.values())))


def _is_variable_of(name: str, expected: str) -> bool:
    return numeral(expected) is None and name[0] in _letters(expected)


def _letters(text: str) -> frozenset[str]:
    return frozenset(letter for letter in _COMMAND.sub(" ", text) if letter.isalpha()) - {"e", "i"}
