"""The final answer of a worked solution, and whether two answers are the same.

A completion states its answer by the last plausible mark in it, whatever its kind (models.text.marked_answers):

    #### 42                  to the end of the line (GSM8K and the built-in data)
    \\boxed{42}               braces balanced (MATH)
    <answer>42</answer>
    ... the answer is 42.    to the end of the sentence; also `answer: 42` and a line `A: 42`

Numbers are compared exactly, as fractions: 1,200 = $1200.00 = 1200 and 1/2 = 0.5 = 50/100. A sign, a currency,
a percent sign and a unit after a number do not make an answer another one (50% is read as 50), a scale does
(5 million is not 5). Lists are compared item by item: (1,2) = (1, 2). Everything else is compared as text, without
regard to case, white space, and to how a script writes its digits, signs and accents (models.text.signs).

A reward is earned here, so what is doubtful is refused: `5 or 6` is no number and equals neither. So is what is left
undone: a fraction that is whole, as 84/2 or 42/1, is right only where the expected answer is written as a fraction too.
Every function takes any text whatever, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from models.text.marked_answers import final_mark
from models.text.quantities import Quantity, plain_text, quantity_of, same_quantity
from models.text.signs import plain_signs

_LAST_NUMBER = re.compile(r"(?:(?<![0-9)])[-−])?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_LIST = re.compile(r"([(\[{]?)([^()\[\]{}]*)([)\]}]?)")
_BETWEEN_ITEMS = re.compile(r" ?(?:[,;] |,(?![0-9]{3}(?![0-9]))|;) ?")
_ANY_COMMA = re.compile(r" ?[,;] ?")


def extract_answer(text: str, last_number: bool = False) -> str | None:
    """The final answer that `text` states, as it is written there, or None where it states none.

    Args:
        text: a whole completion.
        last_number: where no answer is marked, take the last number in the text. Lenient: for judging models that
            were never trained on a format, not for a reward.
    """
    mark = final_mark(text)
    answer = None if mark is None else text[mark.begin : mark.end].strip() or None
    if answer is None and last_number:
        for match in _LAST_NUMBER.finditer(plain_signs(text)):
            answer = match.group().rstrip(",")
    return answer


def expected_answer(answer: str) -> str:
    """Return a problem's answer in its plain form: of a text that marks its answer, as `#### 5` or a worked solution,
    what it states; any other text as it is."""
    return _expected(answer).stated


def same_answer(given: str | None, expected: str) -> bool:
    """Whether `given` states the same answer as `expected`. No answer equals nothing, an empty one neither.

    A unit counts only where both have one: `18 dollars` equals `18` and `18 Dollars`, not `18 apples`. So does a name:
    `x = 18` equals `18`, not `y = 18`.
    """
    if given is None:
        return False
    left, right = plain_text(given), _expected(expected)
    if not left or not right.plain:
        return False
    return left in (right.plain, right.whole) or _same(_read(left), right.read)


def same_text(given: str, expected: str) -> bool:
    """Whether the two are the same letter by letter, but for case, white space, emphasis and LaTeX's wrapping."""
    plain = plain_text(given)
    return bool(plain) and plain == plain_text(expected)


def answer_key(answer: str) -> str:
    """A text equal for answers that are the same, for counting votes: `1/2` for `0.50`. Units are left out."""
    plain = plain_text(answer)
    return _key(_read(plain)) or plain


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


def before_answer(text: str) -> str | None:
    """Return what stands before the mark of the final answer, reasoning included; None where no answer is marked."""
    mark = final_mark(text)
    return None if mark is None else text[: mark.start]


class _Items(NamedTuple):
    """A list of answers, in brackets or without."""

    bracket: str
    items: tuple[Quantity | str, ...]


_Read = Quantity | _Items | None
"""A number, a list, or any other text."""


class _Expected(NamedTuple):
    """Expected answer, read once for all completions of a problem."""

    stated: str
    plain: str
    whole: str
    """The plain text of all of it, also where it marks its answer."""
    read: _Read


@lru_cache(maxsize=1024)
def _expected(answer: str) -> _Expected:
    stated, whole = extract_answer(answer) or answer, plain_text(answer)
    plain = plain_text(stated)
    return _Expected(stated, plain, whole, _read(plain)) if plain else _Expected(answer, whole, whole, _read(whole))


def _read(plain: str) -> _Read:
    number = quantity_of(plain)
    if number is not None or ("," not in plain and ";" not in plain):
        return number
    match = _LIST.fullmatch(plain)
    if match is None or match[3] != _BRACKETS.get(match[1], ""):
        return None
    # no number has thousands' commas in brackets in which no comma has a space behind it
    between = _ANY_COMMA if match[1] and ", " not in plain else _BETWEEN_ITEMS
    items = tuple(each.strip() for each in between.split(match[2]))
    return _Items(match[1], tuple(map(_item, items))) if all(items) else None


def _item(plain: str) -> Quantity | str:
    """A number without unit and name; any other item is a text: of a list, `2 apples` and `2` are two answers."""
    number = quantity_of(plain)
    return plain if number is None or number.unit or number.name else number


def _same(given: _Read, expected: _Read) -> bool:
    if isinstance(given, Quantity) and isinstance(expected, Quantity):
        return same_quantity(given, expected)
    if not isinstance(given, _Items) or not isinstance(expected, _Items):
        return False
    if given.bracket != expected.bracket or len(given.items) != len(expected.items):
        return False
    return all(map(_same_item, given.items, expected.items))


def _same_item(given: Quantity | str, expected: Quantity | str) -> bool:
    if isinstance(given, Quantity) and isinstance(expected, Quantity):
        return same_quantity(given, expected)
    return given == expected


def _key(read: _Read | str) -> str | None:
    if isinstance(read, _Items):
        items = ", ".join(_key(item) or "" for item in read.items)
        return f"{read.bracket}{items}{_BRACKETS.get(read.bracket, '')}"
    if isinstance(read, Quantity):
        return None if read.undone else str(read.value)
    return read
