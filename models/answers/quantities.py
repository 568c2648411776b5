"""Numbers in answers, read exactly: with a sign, a currency, a unit, a name before them or a percent sign.

    1,200    $1200.00    1 1/2    1½    -0.5    1.5e3    18 km/h    x = 18

Every function accepts any text, never raises on it, and takes time linear in its length.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple
from unicodedata import category

from models.answers.units import is_unit
from models.text.signs import SIGNS, composed

LONGEST_NUMBER = 200
"""Characters beyond which an answer is compared as text: only an attack is that long, and gets no exact arithmetic."""

_NUMBER = re.compile(
    r"(?P<sign>[-+]?)"
    r"(?:(?P<whole>[0-9]+)\ (?=[0-9]+/))?"  # the 1 of `1 1/2`
    r"(?P<body>[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}|[0-9]{1,3}(?:\ [0-9]{3})+|[0-9]+|(?=\.[0-9]))"
    r"(?:/(?P<under>[0-9]+)|(?:\.(?P<decimals>[0-9]*))?(?:e(?P<power>[-+]?[0-9]{1,2}))?)"
    r"(?P<unit>(?:\ ?[a-z°][a-z²³]*(?:[ /-][a-z][a-z²³]*){0,3})?)"
)
_NAME = re.compile(r"([a-z][a-z0-9_]{0,30})? ?= ?")
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_SIMPLE = re.compile(r"\s*(?:[-+]?[0-9][0-9.,]*|[^\W_])?\s*")
"""Text that needs no brackets above or below a stroke."""
_WRAPPED_UNIT = re.compile(r"(?<=[0-9])\\(?=(?:text|mathrm|mathbf|textbf|mbox)\{)")
_SIZE = re.compile(r"\\(?:left|right)(?![A-Za-z])")
_WRAPPED = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mbox)\{([^{}]*)\}")
_VULGAR = dict(
    zip("½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞", "1/2 1/3 2/3 1/4 3/4 1/5 2/5 3/5 4/5 1/6 5/6 1/8 3/8 5/8 7/8".split(), strict=True)
)
_CURRENCIES = "".join(sign for sign in map(chr, range(0x20D0)) if category(sign) == "Sc")
_DROPPED = f"%`{_CURRENCIES}"
_ONE_CHARACTER: dict[int, str] = {
    **{code: "" if sign in _DROPPED else sign for code, sign in SIGNS.items()},
    **{ord(vulgar): f" {plain}" for vulgar, plain in _VULGAR.items()},
    **{ord(drop): "" for drop in _DROPPED},
}


class Quantity(NamedTuple):
    """A number with its notation in an answer."""

    value: Fraction
    unit: str = ""
    name: str = ""
    """Name before the number: `x` in `x = 5`."""
    fraction: bool = False
    """Whether it is written as one whole number over another."""
    undone: bool = False
    """Whether that fraction is whole, and therefore a division that was not carried out."""


def plain_text(answer: str) -> str:
    """Return the text in lower case, with one kind of minus, digit and space.

    Currency, emphasis, LaTeX wrapping and the final period are removed.
    """
    answer = composed(answer.translate(_ONE_CHARACTER))
    if "\\" in answer:
        answer = _WRAPPED.sub(r"\1", _WRAPPED_UNIT.sub(r" \\", _FRACTION.sub(_with_a_stroke, answer)))
        answer = _SIZE.sub("", answer)
        for command in ("\\(", "\\)", "\\[", "\\]", "\\,", "\\!", "\\;", "\\ ", "\\"):
            answer = answer.replace(command, "")
    answer = " ".join(answer.split()).strip(" *_\"'").rstrip(".").rstrip(" *_\"'")
    return answer.casefold()


def quantity(answer: str) -> Quantity | None:
    """Return the number in a text; None for any other text."""
    return quantity_of(plain_text(answer))


def quantity_of(plain: str) -> Quantity | None:
    """Return the number in a plain text; None for any other text."""
    if len(plain) > LONGEST_NUMBER:
        return None
    name = _NAME.match(plain)
    number = plain[name.end() :] if name else plain
    if number[:2] in ("- ", "+ "):
        number = number[0] + number[2:]
    match = _NUMBER.fullmatch(number)
    if match is None:
        return None
    if not is_unit(match["unit"]):
        return None
    whole = match["body"].replace(",", "").replace(" ", "") or "0"
    value = Fraction(f"{whole}.{match['decimals'] or '0'}")
    undone = False
    if match["under"] is not None:
        if int(match["under"]) == 0:
            return None
        value /= int(match["under"])
        undone = value.denominator == 1
    if match["power"] is not None:
        value *= Fraction(10) ** int(match["power"])
    value += int(match["whole"] or 0)
    return Quantity(
        value=-value if match["sign"] == "-" else value,
        unit=match["unit"].strip(),
        name=(name[1] or "") if name else "",
        fraction=match["under"] is not None,
        undone=undone,
    )


def same_quantity(given: Quantity, expected: Quantity) -> bool:
    """Return whether a given number is the expected one, with the same name and unit if both have one."""
    if given.value != expected.value or (given.undone and not expected.fraction):
        return False
    return all(
        left == right or not left or not right
        for left, right in ((given.unit, expected.unit), (given.name, expected.name))
    )


def _with_a_stroke(fraction: re.Match[str]) -> str:
    above, under = (text if _SIMPLE.fullmatch(text) else f"({text})" for text in fraction.groups())
    return f" {above}/{under} "
