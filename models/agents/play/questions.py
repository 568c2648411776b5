"""Twenty questions over a list of things with attributes: the information in an answer, in bits."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

Things = Mapping[str, Collection[str]]
"""Attributes by name."""


def left_after(things: Things, possible: Sequence[str], attribute: str, answer: bool) -> list[str]:
    """Return those of `possible` that have the attribute (or do not), in their order."""
    return [name for name in possible if (attribute in things[name]) is answer]


def expected_information(things: Things, possible: Sequence[str], attribute: str) -> float:
    """Return the expected information of the answer to `attribute?` about which of `possible` is the secret, in bits.

    All of `possible` are equally likely. The result is the entropy of the answer: h(p), p the share of `possible` with
    the attribute.
    """
    share = len(left_after(things, possible, attribute, True)) / len(possible)
    return -sum(p * math.log2(p) for p in (share, 1.0 - share) if p)


def attributes_of(things: Things) -> list[str]:
    """Return all attributes, sorted."""
    return sorted({attribute for of_thing in things.values() for attribute in of_thing})
