"""Words after a number: those that change it, and those that are a unit of it.

42 tenths, 42 divided by two, 42 not, 42y        another number, or none
42 dollars, 42 km/h, 42 miles per hour           42
"""

from __future__ import annotations

import re

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_LARGE = "hundred thousand million billion trillion quadrillion lakh crore dozen gross"
_PARTS = (
    "half third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth "
    "sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth "
    "ninetieth hundredth thousandth millionth billionth trillionth quarter"
)
"""Names of fractions; `second` is a unit of time."""
_OPERATIONS = (
    "squared cubed factorial plus minus times over by divided multiplied added subtracted raised power mod modulo "
    "choose root sqrt sin cos tan log ln twice thrice doubled tripled halved"
)
_DOUBTS = "or and not no nor never without except unless if but maybe perhaps wrong false incorrect"
_SHORT_FORMS = "k m b bn mn mio tn"
_CONSTANTS_AND_VARIABLES = (
    "e i j n q r u x y z pi infty alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau "
    "phi chi psi omega"
)
_OTHERS = frozenset(
    [
        *f"{_BELOW_TWENTY} {_TENS} {_LARGE} {_PARTS} {_OPERATIONS} {_DOUBTS}".split(),
        *f"{_SHORT_FORMS} {_CONSTANTS_AND_VARIABLES} halves".split(),
        *(f"{word}s" for word in f"{_BELOW_TWENTY} {_LARGE} {_PARTS}".split()),
    ]
)
_SHORT_UNITS = frozenset(
    "km cm mm dm nm kg mg ml dl cl mi ft yd in lb lbs oz hr hrs min mins sec secs ms kw kj kb mb gb hz pm am pt pts "
    "mph kph kmh kwh usd eur gbp rs deg sq fl cc ha hp st nd rd th g l h s c f w v t d p of to".split()
)
"""Units of one letter are included only if it is unlikely as a variable of an expression; `°` is not a letter."""
_MARKED_UNITS = frozenset("m n j in".split())
_SHORTEST_WORD = 4
"""Letters from which a word directly after a digit is a word, not a product of variables such as `6abc`."""


def is_unit(text: str, *, marked: bool = False) -> bool:
    """Return whether the text after a number leaves its value unchanged.

    Args:
        text: the text, in lower case, with the space before it: empty, or words of letters, `°`, `²`, `³`.
        marked: whether it is written as text among mathematics, as `\\text{ m}`, and is therefore not a variable.
    """
    if not text:
        return True
    words = re.split(r"[ /-]", text.strip())
    bare = [word.rstrip("²³") for word in words]
    if any(word in _OTHERS and not (marked and word in _MARKED_UNITS) for word in bare):
        return False
    if marked:
        return True
    first, attached = bare[0], not text.startswith(" ")
    if first.startswith("°") or first in _SHORT_UNITS:
        return len(first) != 1 or first == "°" or not attached
    return len(first) >= (_SHORTEST_WORD if attached else 3)
