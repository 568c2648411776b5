"""What judges are asked: templates with places that are filled once, so that nothing which is filled in is read anew.

The templates that stand here are those that the built-in data set `judging` trains small judges on. A judge of a real
size is told in its own words what is wanted, with the same places, in the recipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.errors import UserError

SCORE = "judge {prompt} solution {completion}"
"""A score for one completion."""
COMPARE = "compare {prompt} first {first} second {second}"
"""The better of two."""

_PLACE = re.compile(r"\{([a-z_]+)\}")


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
