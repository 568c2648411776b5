"""The final answer of a worked solution, and whether two answers are the same.

A completion states its answer in one of the ways that data sets and models use, tried in this order:

    #### 42                  the last line with the marker (GSM8K and the built-in data)
    \\boxed{42}               the last box, braces balanced (MATH)
    ... the answer is 42.    the last such phrase; also `answer: 42` and a line `A: 42`

Numbers are compared exactly, as fractions: 1,200 = $1200.00 = 1200 and 1/2 = 0.5 = 50/100. A sign, a currency,
a percent sign and a unit after a number do not make an answer another one (50% is read as 50), a scale does
(5 million is not 5). Everything else is compared as text, without regard to case and white space.

A reward is earned here, so what is doubtful is refused: `5 or 6` is no number and equals neither. So is what is left
undone: a fraction that is whole, as 84/2 or 42/1, is right only where the expected answer is written as a fraction too.
Every function takes any text whatever, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import re

from models.text.quantities import plain_text, quantity_of, same_quantity

_HASHES = "####"
_PHRASE = re.compile(r"\banswer[ \t*_]*(?:is\b|:|=)|^[ \t]*A:", re.IGNORECASE | re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|\n")
_LAST_NUMBER = re.compile(r"(?:(?<![0-9)])[-−])?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?")


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

    A unit counts only where both have one: `18 dollars` equals `18` and `18 Dollars`, not `18 apples`. So does a name:
    `x = 18` equals `18`, not `y = 18`.
    """
    if given is None:
        return False
    left, right = plain_text(given), plain_text(expected)
    if not left or not right:
        return False
    if left == right:
        return True
    a, b = quantity_of(left), quantity_of(right)
    return a is not None and b is not None and same_quantity(a, b)


def same_text(given: str, expected: str) -> bool:
    """Whether the two are the same letter by letter, but for case, white space, emphasis and LaTeX's wrapping."""
    plain = plain_text(given)
    return bool(plain) and plain == plain_text(expected)


def answer_key(answer: str) -> str:
    """A text equal for answers that are the same, for counting votes: `1/2` for `0.50`. Units are left out."""
    plain = plain_text(answer)
    number = quantity_of(plain)
    return plain if number is None or number.undone else str(number.value)


def answer_kind(answer: str) -> str:
    """What an expected answer is, in a word or two: whole number, negative number, other number, letter, word, text,
    none."""
    plain = plain_text(answer)
    number = quantity_of(plain)
    if number is not None:
        if number.value < 0:
            return "negative number"
        return "whole number" if number.value.denominator == 1 else "other number"
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
