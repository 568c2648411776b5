"""Invented places and facts about them, which no model has read about: the content of questions and documents.

    capital of Norda: Velmo        river of Velmo: Tosik        people of Velmo: 47

Every land has a capital; every capital has a river, a ruler, a dish and a number of people, in thousands. All names are
different.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
ASKED = ("river", "ruler", "dish")
"""Attributes of a town that questions ask for; their values are names."""


@dataclass(frozen=True)
class Places:
    """Facts about lands and towns, by the name of the place."""

    capitals: dict[str, str]
    """Capital of each land."""
    facts: dict[str, dict[str, str]]
    """River, ruler, dish and people of each town."""

    def documents(self) -> Iterator[str]:
        """Yield the document of every fact."""
        for land, town in self.capitals.items():
            yield fact("capital", land, town)
        for town, known in self.facts.items():
            for attribute, value in known.items():
                yield fact(attribute, town, value)


def fact(attribute: str, place: str, value: str) -> str:
    """Return the document that states a fact."""
    return f"{attribute} of {place}: {value}"


def invent(lands: int, seed: int) -> Places:
    """Invent `lands` lands with their capitals; the same arguments give the same places."""
    random = Random(f"{seed}/places")
    free = iter(names(lands * (2 + len(ASKED)), random))
    capitals = {next(free): next(free) for _ in range(lands)}
    facts = {
        town: {**{attribute: next(free) for attribute in ASKED}, "people": str(random.randint(12, 99))}
        for town in capitals.values()
    }
    return Places(capitals, facts)


def names(count: int, random: Random) -> list[str]:
    """Draw `count` different words of four or five letters."""
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        letters = [random.choice(kind) for kind in (CONSONANTS, VOWELS, CONSONANTS, VOWELS, CONSONANTS)]
        drawn.setdefault("".join(letters[: random.choice((4, 5))]))
    return list(drawn)
