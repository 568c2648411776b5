"""Numbers in LaTeX, read exactly: only numbers that are fully written out, without remaining arithmetic.

    -\\frac{1}{2}    \\frac12    2\\frac{1}{2}    1{,}200    45^\\circ    25\\text{ cm}^2    0.\\overline{3}    101_2
    6.02 \\times 10^{23}    10^{-8}

A number is in scientific notation if its factor is at least 1 and below 10. Another factor, or none, is a product or
a power that was not worked out, and right only if the expected answer is written with a power of ten too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from models.answers.quantities import Quantity, quantity, same_quantity
from models.answers.units import is_unit

LONGEST = 400
"""Characters of an answer beyond which it is not read as an expression."""

_NOTHING = re.compile(r"\\?\$|\\[()]|\\(?:left|right|displaystyle)(?![A-Za-z])|\\!")
_SPACE = re.compile(r"\\[,;: ]|~|\\q?quad(?![A-Za-z])")
_DEGREES = re.compile(r"\^ ?(?:\{ ?\\circ ?\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])")
_ANY_FRACTION = re.compile(r"\\[dtc]?frac(?![A-Za-z])")
_FRACTION_OF_DIGITS = re.compile(r"\\frac ?(?:\{ ?(-?[0-9]+) ?\}|([0-9])) ?(?:\{ ?([0-9]+) ?\}|([0-9]))")
_UNIT = re.compile(r" ?\\(?:text|mathrm|mbox|textrm)\{([^{}0-9]+)\}(?: ?\^ ?\{?([23])\}?)?")
_LAST_UNIT = re.compile(r"\\(?:text|mathrm|mbox|textrm) ?\{([A-Za-z²³ /-]+)\}(?: ?\^ ?\{?[23]\}?)?$")
_LAST_WORDS = re.compile(r"(?<=[0-9}]) ((?:[a-z]{2}|[a-z]{4,20})(?:[ /][a-z]{1,20}){0,3})$")
_TEXT = re.compile(r"\\text(?=\{)")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzéμ°²³ /-.")
_POWER_OF_TEN = re.compile(
    r"(?:(?P<factor>[-+]?[0-9]{1,40}(?:\.[0-9]{1,40})?) ?(?:\\times|\\cdot|[*×·]) ?|(?P<sign>[-+]?))"
    r"10 ?\^ ?(?:\{ ?(?P<braced>[-+−]?[0-9]{1,3}) ?\}|(?P<bare>-?[0-9]{1,3}))"
)
_REPEATING = re.compile(r"([-+]?)([0-9]{0,40})\.([0-9]{0,40})\\overline ?\{ ?([0-9]{1,40}) ?\}")
_OF_BASE = re.compile(r"([0-9]{1,40}) ?_ ?(?:\{ ?([0-9]{1,2}) ?\}|([0-9]))")
_BRACKETS = (("\\{", "\\}"), ("{", "}"), ("(", ")"), ("[", "]"))


@dataclass(frozen=True)
class Numeral:
    """A number, and its notation."""

    quantity: Quantity
    power: bool = False
    """Whether it is written with a power of ten."""
    undone: bool = False
    """Whether its notation leaves a product or a power to be worked out, as 60.2 times a power of ten does."""
    base: str = ""
    """Base of its digits, if written; the value is then the one that the digits would have in base ten."""


def same_numeral(given: Numeral, expected: Numeral) -> bool:
    """Return whether a given number is exactly the expected one, and no less worked out."""
    if given.undone and not expected.power:
        return False
    if given.base and given.base != expected.base:
        return False
    return same_quantity(given.quantity, expected.quantity)


@lru_cache(maxsize=4096)
def numeral(text: str) -> Numeral | None:
    """Return the number in a text, with or without one pair of brackets around it; None for any other text."""
    if len(text) > LONGEST:
        return None
    return _read(_inside(plain_latex(text)))


def without_unit(text: str) -> str:
    """Return an expression without its unit, which is written as text, as `\\text{ cm}^2`, or as words, as `meters`."""
    marked = _LAST_UNIT.search(text)
    if marked is not None and is_unit(f" {marked[1].strip().casefold()}", marked=True):
        return text[: marked.start()].strip() or text
    words = _LAST_WORDS.search(text)
    if words is not None and len(words[1].split()[0]) != 1 and is_unit(f" {words[1].casefold()}"):
        return text[: words.start()].strip()
    return text


def plain_latex(text: str) -> str:
    """Return LaTeX without typesetting: dollars, sizes of brackets, kinds of fractions and spaces."""
    plain = _NOTHING.sub("", text.replace("{,}", ",").replace("−", "-"))
    plain = _ANY_FRACTION.sub(r"\\frac", _DEGREES.sub("°", _SPACE.sub(" ", plain)))
    return " ".join(plain.split())


def with_strokes(plain: str) -> str:
    """Return plain LaTeX with fractions of whole numbers written with a stroke, `\\frac{1}{2}` as ` 1/2 `."""
    return _FRACTION_OF_DIGITS.sub(_written_fraction, plain)


def _inside(plain: str) -> str:
    for begin, end in _BRACKETS:
        if plain.startswith(begin) and plain.endswith(end) and len(plain) > len(begin):
            inside = plain[len(begin) : -len(end)].strip()
            return plain if any(mark in inside for mark in "()[],") else inside
    return plain


def _read(plain: str) -> Numeral | None:
    plain = with_strokes(plain)
    unit = _UNIT.search(plain)
    if unit is not None:
        return _with_unit(_read(plain[: unit.start()]), unit) if unit.end() == len(plain) else None
    if match := _POWER_OF_TEN.match(plain):
        return _scientific(match, plain[match.end() :])
    if match := _REPEATING.fullmatch(plain):
        sign, whole, fixed, again = match.groups()
        value = Fraction(int(f"{whole}{fixed}{again}") - int(f"{whole}{fixed}" or 0))
        value /= (10 ** len(again) - 1) * 10 ** len(fixed)
        return Numeral(Quantity(-value if sign == "-" else value))
    if match := _OF_BASE.fullmatch(plain):
        return Numeral(Quantity(Fraction(int(match[1]))), base=match[2] or match[3])
    if "\\" in _TEXT.sub("", plain.replace("\\%", "")) or "=" in plain:
        return None
    read = quantity(plain)
    return None if read is None else Numeral(read)


def _with_unit(number: Numeral | None, unit: re.Match[str]) -> Numeral | None:
    name = f"{unit[1].strip().casefold()}{ {'2': '²', '3': '³'}.get(unit[2], '') }"
    if number is None or number.quantity.unit or not (set(name) <= _LETTERS and is_unit(f" {name}", marked=True)):
        return None
    return replace(number, quantity=number.quantity._replace(unit=name))


def _scientific(match: re.Match[str], rest: str) -> Numeral | None:
    with_unit = quantity(f"1{rest}") if rest[:1] in (" ", "°", "") else None
    if with_unit is None or with_unit.value != 1:
        return None
    factor = Fraction(match["factor"] or f"{match['sign']}1")
    power = int((match["braced"] or match["bare"]).replace("−", "-"))
    return Numeral(
        Quantity(factor * Fraction(10) ** power, with_unit.unit),
        power=True,
        undone=match["factor"] is None or not 1 <= abs(factor) < 10,
    )


def _written_fraction(match: re.Match[str]) -> str:
    return f" {match[1] or match[2]}/{match[3] or match[4]} "
