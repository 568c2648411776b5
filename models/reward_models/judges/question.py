"""Question templates for judges. Placeholders are replaced once, so that inserted text is never parsed again.

The templates in this file are those that the built-in data sets `judging`, `checking` and `comparing` train small
judges on. For a judge of a real size, the recipe describes the task in its own words, with the same places.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from models.base.errors import UserError

SCORE = "judge {prompt} solution {completion}"
"""Score one completion."""
COMPARE = "compare {prompt} first {first} second {second}"
"""Choose the better of two completions."""
LIST = "list {prompt}"
"""List the items that a prompt asks for."""
TICK = "tick {item} in {completion}"
"""Decide whether a completion has an item."""
STEP = "step {prompt} so far {before} now {step}"
"""Decide whether a step is right, after working it."""
PLAIN = "plain {prompt} so far {before} now {step}"
"""Decide whether a step is right, with the verdict alone."""
PROGRAM = "program {prompt} so far {before} now {step}"
"""Write a program that works a step."""
OUTPUT = "output {output} step {step}"
"""Decide whether a step is right from the output of such a program."""
REVERSE = "reverse {prompt} answer {answer} so far {before} now {step}"
"""Decide whether a step leads to an answer."""
SOLVE = "solve {prompt}"
"""Answer the prompt."""
REFER = "refer {prompt} reference {reference} first {first} second {second}"
"""Choose the better of two completions, given the judge's own answer as a reference."""
RANK = "rank {principles} {prompt} {completions}"
"""Rank several completions from best to worst under a principle."""
NOTHING = "none"
"""Text that replaces a placeholder without content."""

_PLACE = re.compile(r"\{([a-z_]+)\}")
_NUMBER = re.compile(r"(\banswer\s{0,9}\d{1,9})\s{0,9}:[\s:]*", re.IGNORECASE)


def numbered(completions: Sequence[str]) -> str:
    """Format completions under their numbers from 1, for a question.

    A numbering that a completion writes itself loses its colon, so that it cannot pass for another completion.
    """
    texts = (_NUMBER.sub(r"\1 ", text) for text in completions)
    return "\n".join(f"answer {number} : {text}" for number, text in enumerate(texts, 1))


def fill(template: str, values: Mapping[str, str]) -> str:
    """Return the template with every known placeholder replaced; braces in the inserted text are left unchanged."""
    return _PLACE.sub(lambda match: values.get(match[1], match[0]), template)


def check_template(template: str, needed: set[str], where: str, allowed: frozenset[str] = frozenset()) -> None:
    """Check the placeholders of a template.

    Args:
        template: the template.
        needed: required placeholders.
        where: key of the recipe, for the error message.
        allowed: optional placeholders.

    Raises:
        UserError: a required placeholder is missing, or a placeholder is unknown.
    """
    places = set(_PLACE.findall(template))
    if missing := sorted(needed - places):
        raise UserError(f"{where}: {{{missing[0]}}} is missing from the template")
    if unknown := sorted(places - needed - allowed):
        known = ", ".join(f"{{{name}}}" for name in sorted(needed | allowed))
        raise UserError(f"{where}: {{{unknown[0]}}} is not a placeholder of this template; it takes {known}")
