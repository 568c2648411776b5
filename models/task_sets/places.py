"""Invented places and facts about them, which no model has read of: what questions are asked about and documents say.

    capital of Norda: Velmo        river of Velmo: Tosik        people of Velmo: 47

Every land has a capital, every capital a river, a ruler and a dish, and so many thousand people. All names are another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
ASKED = ("river", "ruler", "dish")
"""What is asked about a town; all of them names."""


@dataclass(frozen=True)
class Places:
    """Facts by what they are about."""

    capitals: dict[str, str]
    """Town of each land."""
    facts: dict[str, dict[str, str]]
    """Of each town: river, ruler, dish, people."""

    def documents(self) -> Iterator[str]:
        """Every fact by itself, as a document says it."""
        for land, town in self.capitals.items():
            yield fact("capital", land, town)
        for town, known in self.facts.items():
            for attribute, value in known.items():
                yield fact(attribute, town, value)


def fact(attribute: str, place: str, value: str) -> str:
    """How a document says it."""
    return f"{attribute} of {place}: {value}"


def invent(lands: int, seed: int) -> Places:
    """So many lands with their capitals; the same numbers give the same places."""
    random = Random(f"{seed}/places")
    free = iter(names(lands * (2 + len(ASKED)), random))
    capitals = {next(free): next(free) for _ in range(lands)}
    facts = {
        town: {**{attribute: next(free) for attribute in ASKED}, "people": str(random.randint(12, 99))}
        for town in capitals.values()
    }
    return Places(capitals, facts)


def names(count: int, random: Random) -> list[str]:
    """So many different words of four or five letters."""
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        letters = [random.choice(kind) for kind in (CONSONANTS, VOWELS, CONSONANTS, VOWELS, CONSONANTS)]
        drawn.setdefault("".join(letters[: random.choice((4, 5))]))
    return list(drawn)
