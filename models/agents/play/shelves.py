"""A shop's catalogue in a small SQLite database in memory, of which a customer may read all and change only the cart.

A customer's words never become SQL: every statement is written here, and words and numbers are its parameters. In
addition the connection itself refuses everything else: once the catalogue is filled, its authorizer permits only
reading and changes of the table `cart`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple


class Item(NamedTuple):
    """An article of the shop."""

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
        """Return number and price of the items whose kind is among `words`, the first `most` of them by number."""
        marks = ", ".join("?" * len(words))
        rows = self._base.execute(
            f"SELECT number, price FROM item WHERE kind IN ({marks}) ORDER BY number LIMIT ?", (*words, most)
        )
        return [(number, price) for number, price in rows]

    def look(self, number: int) -> Item | None:
        """Return an item; None: no item has this number."""
        row = self._base.execute("SELECT kind, colour, price FROM item WHERE number = ?", (number,)).fetchone()
        return Item(*row) if row else None

    def add(self, number: int) -> bool:
        """Add an item to the cart. Returns whether the item exists."""
        known = self.look(number) is not None
        if known:
            self._base.execute("INSERT OR IGNORE INTO cart VALUES (?)", (number,))
        return known

    def drop(self, number: int) -> None:
        """Remove an item from the cart."""
        self._base.execute("DELETE FROM cart WHERE number = ?", (number,))

    @property
    def cart(self) -> list[int]:
        """Numbers of the items in the cart, ascending."""
        return [number for (number,) in self._base.execute("SELECT number FROM cart ORDER BY number")]

    def close(self) -> None:
        """Close the database."""
        self._base.close()


def _permit(action: int, first: str | None, second: str | None, base: str | None, inner: str | None) -> int:
    """Permit an action of SQLite for a customer: reading, and changes of the cart."""
    if action in _ALLOWED or (action in _OF_THE_CART and first == "cart"):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
