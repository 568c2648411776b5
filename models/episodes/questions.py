"""Twenty questions over things that are listed with their attributes: what an answer tells, in bits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

Things = Mapping[str, Collection[str]]
"""Name -> attributes."""


def left_after(things: Things, possible: Sequence[str], attribute: str, answer: bool) -> list[str]:
    """Those of `possible` that have the attribute (or not), in their order."""
    return [name for name in possible if (attribute in things[name]) is answer]


def expected_information(things: Things, possible: Sequence[str], attribute: str) -> float:
    """What the answer to `attribute?` is expected to tell of which of `possible` it is, all equally likely, in bits.

    It is the entropy of the answer, as the secret decides it: h(p), p the share of `possible` with the attribute.
    """
    share = len(left_after(things, possible, attribute, True)) / len(possible)
    return -sum(p * math.log2(p) for p in (share, 1.0 - share) if p)


def attributes_of(things: Things) -> list[str]:
    """All that can be asked for, sorted."""
    return sorted({attribute for of_thing in things.values() for attribute in of_thing})
