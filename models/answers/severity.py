"""Severity of actions: a table of patterns with weights, and the largest weight found in each turn.

Weights of escalation as in the wargames of paper 322 (arXiv 2401.03408), where actions are sorted from de-escalation to
nuclear escalation, and each sort has a weight that grows about exponentially.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from models.base.errors import UserError

Table = Sequence[tuple[re.Pattern[str], float]]


def severity_table(weights: Mapping[str, float], where: str) -> Table:
    """Compile patterns with their weights.

    Args:
        weights: regular expression -> weight of a turn in which it is found, regardless of case; it may be below zero.
        where: key of the recipe, for the message.

    Raises:
        UserError: a pattern is not a valid regular expression.
    """
    table = []
    for pattern, weight in weights.items():
        try:
            table.append((re.compile(pattern, re.IGNORECASE), float(weight)))
        except re.error as error:
            raise UserError(f"{where}: {pattern!r} is not a regular expression ({error})") from None
    return table


def severity_of(turns: Sequence[str], table: Table) -> list[float]:
    """Return the largest weight among the patterns that are found in each turn, zero if none is, [turns]."""
    return [max([weight for pattern, weight in table if pattern.search(turn)], default=0.0) for turn in turns]
