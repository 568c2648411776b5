"""What judges are asked: templates with places that are filled once, so that nothing which is filled in is read anew.

The templates that stand here are those that the built-in data sets `judging`, `checking` and `comparing` train small
judges on. A judge of a real size is told in its own words what is wanted, with the same places, in the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from models.errors import UserError

SCORE = "judge {prompt} solution {completion}"
"""A score for one completion."""
COMPARE = "compare {prompt} first {first} second {second}"
"""The better of two."""
LIST = "list {prompt}"
"""What a prompt asks for, item by item."""
TICK = "tick {item} in {completion}"
"""Whether a completion has an item."""
STEP = "step {prompt} so far {before} now {step}"
"""Whether a step is right, worked first."""
PLAIN = "plain {prompt} so far {before} now {step}"
"""Likewise, with the verdict alone."""
PROGRAM = "program {prompt} so far {before} now {step}"
"""A program that works a step."""
OUTPUT = "output {output} step {step}"
"""Whether a step is right by what such a program printed."""
REVERSE = "reverse {prompt} answer {answer} so far {before} now {step}"
"""Whether a step leads to an answer."""
SOLVE = "solve {prompt}"
"""An answer of the judge's own."""
REFER = "refer {prompt} reference {reference} first {first} second {second}"
"""The better of two beside such an answer."""
RANK = "rank {principles} {prompt} {completions}"
"""Several from the best on, as a principle says."""
NOTHING = "none"
"""Stands in a place that would be empty."""

_PLACE = re.compile(r"\{([a-z_]+)\}")
_NUMBER = re.compile(r"(\banswer\s{0,9}\d{1,9})\s{0,9}:[\s:]*", re.IGNORECASE)


def numbered(completions: Sequence[str]) -> str:
    """Completions under their numbers from 1, as a question holds them. What a completion says itself is no number of
    another: it loses the colon."""
    texts = (_NUMBER.sub(r"\1 ", text) for text in completions)
    return "\n".join(f"answer {number} : {text}" for number, text in enumerate(texts, 1))


def fill(template: str, said: Mapping[str, str]) -> str:
    """The template with every known place filled; braces in what is filled in are left as they are."""
    return _PLACE.sub(lambda match: said.get(match[1], match[0]), template)


def check_template(template: str, needed: set[str], where: str, allowed: frozenset[str] = frozenset()) -> None:
    """Make sure that a template has its places.

    Args:
        needed: places that must be there.
        where: key of the recipe.
        allowed: places that may be there.

    Raises:
        UserError: one is missing, or is none.
    """
    places = set(_PLACE.findall(template))
    if missing := sorted(needed - places):
        raise UserError(f"{where}: {{{missing[0]}}} does not stand in the template")
    if unknown := sorted(places - needed - allowed):
        known = ", ".join(f"{{{name}}}" for name in sorted(needed | allowed))
        raise UserError(f"{where}: {{{unknown[0]}}} is no place of this template; there are {known}")
