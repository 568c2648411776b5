"""The final answer of a worked solution, and the comparison of two answers.

The answer of a completion is its last plausible mark, of any kind (models.answers.marked_answers):

    #### 42                  to the end of the line (GSM8K and the built-in data)
    \\boxed{42}               braces balanced (MATH)
    <answer>42</answer>
    ... the answer is 42.    to the end of the sentence; also `answer: 42` and a line `A: 42`

Numbers are compared exactly, as fractions: 1,200 = $1200.00 = 1200 and 1/2 = 0.5 = 50/100. A sign, a currency,
a percent sign and a unit after a number do not change an answer (50% is read as 50), a scale does
(5 million is not 5). Lists are compared item by item: (1,2) = (1, 2). Everything else is compared as text, without
regard to case, white space, and the script's form of digits, signs and accents (models.text.signs).

Rewards depend on this comparison, so doubtful answers are refused: `5 or 6` is not a number and equals neither. An
unfinished calculation is refused as well: a fraction that is whole, such as 84/2 or 42/1, is right only if the expected
answer is written as a fraction too. Every function accepts any text, never raises on it, and takes time linear in its
length.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from models.answers.marked_answers import final_mark
from models.answers.quantities import Quantity, plain_text, quantity_of, same_quantity
from models.text.signs import plain_signs

_LAST_NUMBER = re.compile(r"(?:(?<![0-9)])[-−])?(?:[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+)(?:/[0-9]+)?")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_LIST = re.compile(r"([(\[{]?)([^()\[\]{}]*)([)\]}]?)")
_BETWEEN_ITEMS = re.compile(r" ?(?:[,;] |,(?![0-9]{3}(?![0-9]))|;) ?")
_ANY_COMMA = re.compile(r" ?[,;] ?")


def extract_answer(text: str, last_number: bool = False) -> str | None:
    """Return the final answer that `text` marks, exactly as written, or None if it marks none.

    Args:
        text: a whole completion.
        last_number: if no answer is marked, take the last number in the text. Lenient: for evaluating models that
            were never trained on a format, not for a reward.
    """
    mark = final_mark(text)
    answer = None if mark is None else text[mark.begin : mark.end].strip() or None
    if answer is None and last_number:
        for match in _LAST_NUMBER.finditer(plain_signs(text)):
            answer = match.group().rstrip(",")
    return answer


def expected_answer(answer: str) -> str:
    """Return a problem's answer in its plain form.

    That is the marked answer of a text such as `#### 5` or a worked solution, and any other text unchanged.
    """
    return _expected(answer).stated


def same_answer(given: str | None, expected: str) -> bool:
    """Return whether `given` is the same answer as `expected`. A missing or empty answer equals nothing.

    A unit counts only if both have one: `18 dollars` equals `18` and `18 Dollars`, not `18 apples`. The same holds for
    a name: `x = 18` equals `18`, not `y = 18`.
    """
    if given is None:
        return False
    left, right = plain_text(given), _expected(expected)
    if not left or not right.plain:
        return False
    return left in (right.plain, right.whole) or _same(_read(left), right.read)


def same_text(given: str, expected: str) -> bool:
    """Return whether the two texts are equal except for case, white space, emphasis and LaTeX's wrapping."""
    plain = plain_text(given)
    return bool(plain) and plain == plain_text(expected)


def answer_key(answer: str) -> str:
    """Return a text that is equal for the same answers, for counting votes: `1/2` for `0.50`. Units are left out."""
    plain = plain_text(answer)
    return _key(_read(plain)) or plain


def answer_kind(answer: str) -> str:
    """Return the kind of an expected answer: whole number, negative number, other number, letter, word, text, none."""
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
    """Return the text before the mark of the final answer, reasoning included; None if no answer is marked."""
    mark = final_mark(text)
    return None if mark is None else text[: mark.start]


class _Items(NamedTuple):
    """A list of answers, in brackets or without."""

    bracket: str
    items: tuple[Quantity | str, ...]


_Read = Quantity | _Items | None
"""A number, a list, or any other text."""


class _Expected(NamedTuple):
    """Expected answer, parsed once for all completions of a problem."""

    stated: str
    plain: str
    whole: str
    """The plain text of the whole answer, also if it marks its answer."""
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
    # no number has thousands' commas in brackets in which no comma is followed by a space
    between = _ANY_COMMA if match[1] and ", " not in plain else _BETWEEN_ITEMS
    items = tuple(each.strip() for each in between.split(match[2]))
    return _Items(match[1], tuple(map(_item, items))) if all(items) else None


def _item(plain: str) -> Quantity | str:
    """Return a number without unit and name; any other item stays text: in a list, `2 apples` and `2` are different."""
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
