"""A shop's catalogue in a small SQLite database in memory, which a customer reads and whose cart alone is writable.

What a customer says never becomes SQL: every statement is written here, and words and numbers are its parameters. The
connection refuses anything beyond that by itself, whoever would ask: once the catalogue is filled, reading and changes
of the table `cart` are all that its authorizer lets through.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """What can be bought."""

    kind: str
    colour: str
    price: int


_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}
_OF_THE_CART = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_DELETE}


class Shelves:
    """Items, numbered from 1, and a cart."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._base = sqlite3.connect(":memory:", check_same_thread=False)
        self._base.execute("CREATE TABLE item (number INTEGER PRIMARY KEY, kind TEXT, colour TEXT, price INTEGER)")
        self._base.execute("CREATE TABLE cart (number INTEGER PRIMARY KEY REFERENCES item)")
        self._base.executemany(
            "INSERT INTO item VALUES (?, ?, ?, ?)", [(number, *item) for number, item in enumerate(items, 1)]
        )
        self._base.commit()
        self._base.set_authorizer(_permit)

    def search(self, words: Sequence[str], most: int) -> list[tuple[int, int]]:
        """Number and price of the items whose kind is among `words`, the first `most` of them by number."""
        marks = ", ".join("?" * len(words))
        rows = self._base.execute(
            f"SELECT number, price FROM item WHERE kind IN ({marks}) ORDER BY number LIMIT ?", (*words, most)
        )
        return [(number, price) for number, price in rows]

    def look(self, number: int) -> Item | None:
        """An item; None: there is none of that number."""
        row = self._base.execute("SELECT kind, colour, price FROM item WHERE number = ?", (number,)).fetchone()
        return Item(*row) if row else None

    def add(self, number: int) -> bool:
        """Lay an item into the cart. Returns whether there is such an item."""
        known = self.look(number) is not None
        if known:
            self._base.execute("INSERT OR IGNORE INTO cart VALUES (?)", (number,))
        return known

    def drop(self, number: int) -> None:
        """Take an item out of the cart."""
        self._base.execute("DELETE FROM cart WHERE number = ?", (number,))

    @property
    def cart(self) -> list[int]:
        """Numbers of the items in the cart, ascending."""
        return [number for (number,) in self._base.execute("SELECT number FROM cart ORDER BY number")]

    def close(self) -> None:
        """Let go of the database."""
        self._base.close()


def _permit(action: int, first: str | None, second: str | None, base: str | None, inner: str | None) -> int:
    """What SQLite may do for a customer: read, and change the cart."""
    if action in _ALLOWED or (action in _OF_THE_CART and first == "cart"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
