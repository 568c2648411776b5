"""Damages to a word and their repairs: the small models of a composed plan, each of which does one thing.

A plan that undoes the damages in the opposite order restores the word; a part of it, or another order, may restore some
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def _shifted(text: str, by: int) -> str:
    moved = str.maketrans(ALPHABET, ALPHABET[by:] + ALPHABET[:by])
    return text.translate(moved)


DAMAGES: Mapping[str, Callable[[str], str]] = {
    "turned": lambda text: text[::-1],
    "shifted": lambda text: _shifted(text, 1),
    "doubled": lambda text: "".join(letter * 2 for letter in text),
    "dotted": lambda text: ".".join(text),
    "boxed": lambda text: f"x{text}x",
}
"""Damages to a word."""

REPAIRS: Mapping[str, Callable[[str], str]] = {
    "turn": lambda text: text[::-1],
    "shift": lambda text: _shifted(text, -1),
    "halve": lambda text: text[::2],
    "undot": lambda text: text.replace(".", ""),
    "unbox": lambda text: text[1:-1],
}
"""Repairs, in the order of the damages."""
