"""The final answer of a worked solution, and whether two answers are the same.

A completion states its answer in one of the ways that data sets and models use, tried in this order:

    #### 42                  the last line with the marker (GSM8K and the built-in data)
    \\boxed{42}               the last box, braces balanced (MATH)
    ... the answer is 42.    the last such phrase; also `answer: 42` and a line `A: 42`

Numbers are compared exactly, as fractions: 1,200 = $1200.00 = 1200 and 1/2 = 0.5 = 50/100. A sign, a currency,
a percent sign and a unit after a number do not make an answer another one (50% is read as 50), a scale does
(5 million is not 5). Everything else is compared as text, without regard to case and white space.

A reward is earned here, so what is doubtful is refused: `5 or 6` is no number and equals neither.
Every function takes any text whatever, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST_NUMBER = 200
"""Characters beyond which an answer is compared as text: no exact arithmetic on what only an attack writes."""

_HASHES = "####"
_PHRASE = re.compile(r"\banswer[ \t*_]*(?:is\b|:|=)|^[ \t]*A:", re.IGNORECASE | re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_LAST_NUMBER = re.compile(r"(?:(?<![0-9)])[-−])?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?")

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:(?P<whole>[0-9]+)\ (?=[0-9]+/))?"  # the 1 of `1 1/2`
    r"(?P<body>[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}|[0-9]{1,3}(?:\ [0-9]{3})+|[0-9]+|(?=\.[0-9]))"
    r"(?:\.(?P<decimals>[0-9]*))?"
    r"(?:/(?P<under>[0-9]+)|e(?P<power>[-+]?[0-9]{1,2}))?"
    r"(?P<unit>(?:\ ?[a-z°][a-z²³]*(?:[ /-][a-z][a-z²³]*){0,3})?)"
)
_SCALES = frozenset(
    "hundred hundreds thousand thousands million millions billion billions trillion dozen dozens half halves third "
    "thirds quarter quarters squared cubed factorial k m b bn mn mio e i pi x or and plus minus times".split()
)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,30} ?= ?|= ?")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_WRAPPED = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\{([^{}]*)\}")
_VULGAR = {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4"}
_ONE_CHARACTER: dict[int, str] = {
    **{ord(vulgar): plain for vulgar, plain in _VULGAR.items()},
    **{ord(minus): "-" for minus in "−‐‑‒–﹣－"},
    **{ord(space): " " for space in "\u00a0\u2007\u2009\u202f\u3000"},
    **{0xFF10 + digit: str(digit) for digit in range(10)},
    **{ord(drop): "" for drop in "$€£¥₹%％`\u200b\ufeff"},
    ord("＋"): "+",
    ord("，"): ",",
    ord("．"): ".",
    ord("⁄"): "/",
}


def extract_answer(text: str, last_number: bool = False) -> str | None:
    """The final answer that `text` states, as it is written there, or None where it states none.

    Args:
        text: a whole completion.
        last_number: where no answer is marked, take the last number in the text. Lenient: for judging models that
            were never trained on a format, not for a reward.
    """
    answer = _after_hashes(text) or _boxed(text) or _after_phrase(text)
    if answer is None and last_number:
        for match in _LAST_NUMBER.finditer(text):
            answer = match.group().rstrip(",")
    return answer


def same_answer(given: str | None, expected: str) -> bool:
    """Whether `given` states the same answer as `expected`. No answer equals nothing, an empty one neither.

    A unit counts only where both have one: `18 dollars` equals `18` and `18 Dollars`, not `18 apples`.
    """
    if given is None:
        return False
    left, right = _plain(given), _plain(expected)
    if not left or not right:
        return False
    if left == right:
        return True
    a, b = _quantity(left), _quantity(right)
    if a is None or b is None:
        return False
    return a[0] == b[0] and (a[1] == b[1] or not a[1] or not b[1])


def answer_key(answer: str) -> str:
    """A text equal for answers that are the same, for counting votes: `1/2` for `0.50`. Units are left out."""
    plain = _plain(answer)
    quantity = _quantity(plain)
    return plain if quantity is None else str(quantity[0])


def answer_kind(answer: str) -> str:
    """What an expected answer is, in a word or two: whole number, negative number, other number, letter, word, text,
    none."""
    plain = _plain(answer)
    quantity = _quantity(plain)
    if quantity is not None:
        if quantity[0] < 0:
            return "negative number"
        return "whole number" if quantity[0].denominator == 1 else "other number"
    if not plain:
        return "none"
    if " " in plain:
        return "text"
    return "letter" if len(plain) == 1 or (len(plain) == 3 and plain[0] == "(" and plain[2] == ")") else "word"


def before_answer(text: str) -> str:
    """What stands before the `####` whose answer `extract_answer` reads; empty where it reads none there."""
    place = _marker(text)
    return "" if place is None else text[:place]


def _after_hashes(text: str) -> str | None:
    place = _marker(text)
    return None if place is None else text[place + len(_HASHES) :].partition("\n")[0].strip()


def _marker(text: str) -> int | None:
    """Place of the last marker in the last line that states something behind its own."""
    end = len(text)
    for line in reversed(text.split("\n")) if _HASHES in text else ():
        before, marker, rest = line.rpartition(_HASHES)
        if marker and rest.strip():
            return end - len(line) + len(before)
        end -= len(line) + 1
    return None


def _boxed(text: str) -> str | None:
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for end in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : end].strip() or None
    return None


def _after_phrase(text: str) -> str | None:
    start = None
    for phrase in _PHRASE.finditer(text):
        start = phrase.end()
    if start is None:
        return None
    rest = text[start:].lstrip(" \t\r\n:*_=")
    end = _SENTENCE_END.search(rest)
    return (rest[: end.start()] if end else rest).strip() or None


def _plain(answer: str) -> str:
    """Lower case, one kind of minus, digit and space, no currency, emphasis, LaTeX wrapping or final period."""
    answer = answer.translate(_ONE_CHARACTER)
    if "\\" in answer:
        answer = _WRAPPED.sub(r"\1", _FRACTION.sub(r" \1/\2 ", answer))
        for command in ("\\(", "\\)", "\\[", "\\]", "\\,", "\\!", "\\;", "\\ ", "\\"):
            answer = answer.replace(command, "")
    answer = " ".join(answer.split()).strip(" *_\"'").rstrip(".").rstrip(" *_\"'")
    return answer.casefold()


def _quantity(plain: str) -> tuple[Fraction, str] | None:
    """The number that the text is, and its unit ("" without one); None where it is anything else."""
    if len(plain) > LONGEST_NUMBER:
        return None
    name = _NAME.match(plain)
    number = plain[name.end() :] if name else plain
    if number[:2] in ("- ", "+ "):
        number = number[0] + number[2:]
    match = _NUMBER.fullmatch(number)
    if match is None:
        return None
    unit = match["unit"].strip()
    if not _SCALES.isdisjoint(re.split(r"[ /-]", unit)):
        return None
    whole = match["body"].replace(",", "").replace(" ", "") or "0"
    value = Fraction(f"{whole}.{match['decimals'] or '0'}")
    if match["under"] is not None:
        if int(match["under"]) == 0:
            return None
        value /= int(match["under"])
    if match["power"] is not None:
        value *= Fraction(10) ** int(match["power"])
    value += int(match["whole"] or 0)
    return (-value if match["sign"] == "-" else value), unit
