"""A shop with a database: search, look, add, buy, so that the purchase meets the request (after WebShop).

    shop 412: red hat < 20
    search hat | 2 $14, 5 $9 | look 2 | blue hat $14 | look 5 | red hat $9 | add 5 | cart 5 | buy

The last line of a turn is one command:

    search KIND    numbers and prices of the items of that kind
    look NUMBER    kind, colour and price
    add NUMBER     into the cart
    drop NUMBER    out of it
    buy            ends the episode

The catalogue is SQLite in memory, built from the problem's answer; commands are parsed here, and no word of them
becomes SQL (`models.agents.play.shelves`). The goal is reached only with a single item that meets all demands; a
setting defines the reward of the purchase. `by_rank` is a hierarchy with partial credit, in which demands that are
harder to meet have more weight, so that demands that most items meet earn almost nothing (Shop-R1, paper 260).
"""

from __future__ import annotations

import math
from typing import Literal

from models.agents.play.shelves import Item, Shelves
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Positive
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

COMMANDS = "search KIND, look N, add N, drop N or buy"


class ShopAnswer(Hidden):
    """Hidden answer of a problem: the catalogue, and the demands on the purchase."""

    items: tuple[tuple[str, str, int], ...]
    """Kind, colour and price of each, numbered from 1."""
    kind: str
    colour: str = ""
    """Demanded colour; empty: any."""
    under: int = 0
    """The price must be below it; 0: any price."""

    def met(self, item: Item) -> list[tuple[bool, float]]:
        """Return whether `item` meets each demand, and how hard the demand is to meet, in order of the hierarchy.

        How hard it is: -log2 of the share of the catalogue that meets the demand, in bits.
        """
        others = [self._holds(Item(*other)) for other in self.items]
        shares = [sum(column) / len(others) for column in zip(*others, strict=True)]
        bits = [-math.log2(share) if share else 0.0 for share in shares]
        return list(zip(self._holds(item), bits, strict=True))

    def _holds(self, item: Item) -> list[bool]:
        demands = [(True, item.kind == self.kind), (bool(self.colour), item.colour == self.colour)]
        demands.append((self.under > 0, item.price < self.under))
        return [holds for counts, holds in demands if counts]


@part("shop")
class Shop(Environment):
    """A catalogue to search, a cart, a purchase."""

    needs_answers = True
    shown: Positive = 4
    """Maximum number of items that a search lists."""
    pays: Literal["all", "share", "by_rank"] = "all"
    """Reward of a purchase. all: 1 if it meets all demands; share: the share of the demands that it meets; by_rank: the
    demands that it meets before the first that it does not, each weighted by how hard it is to meet, over the weight of
    all."""

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer holds the fields of `ShopAnswer`.

        An example is `{"items": [["hat", "red", 9], ...], "kind": "hat", ...}`.
        """
        return _Shopping(self, hidden(problem, ShopAnswer, self.name))

    def _reward_of(self, request: ShopAnswer, item: Item) -> float:
        met = request.met(item)
        if all(holds for holds, _ in met):
            return 1.0
        if self.pays == "all":
            return 0.0
        if self.pays == "share":
            return sum(holds for holds, _ in met) / len(met)
        first_unmet = next(place for place, (holds, _) in enumerate(met) if not holds)
        whole = sum(bits for _, bits in met)
        return sum(bits for _, bits in met[:first_unmet]) / whole if whole else 0.0


class _Shopping:
    def __init__(self, settings: Shop, request: ShopAnswer) -> None:
        self._settings, self._request = settings, request
        self._shelves = Shelves([Item(*item) for item in request.items])
        self._responses: list[str] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        return "", {"state": ""}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        command, *words = (turn.strip().lower().splitlines() or [""])[-1].split() or [""]
        if command == "buy" and not words:
            return self._buy()
        response = self._run_command(command, words)
        if response not in self._responses:
            self._responses.append(response)
        return response, 0.0, False, False, {"state": "; ".join(self._responses), "solved": False}

    def _run_command(self, command: str, words: list[str]) -> str:
        shelves = self._shelves
        if command == "search" and words:
            matches = shelves.search(words, self._settings.shown)
            return ", ".join(f"{number} ${price}" for number, price in matches) or "nothing"
        if command not in ("look", "add", "drop") or len(words) != 1 or not words[0].isdecimal() or len(words[0]) > 9:
            return f"error: {COMMANDS}"
        number = int(words[0])
        if command == "look":
            item = shelves.look(number)
            return f"{item.colour} {item.kind} ${item.price}" if item else "error: no such item"
        if command == "add" and not shelves.add(number):
            return "error: no such item"
        if command == "drop":
            shelves.drop(number)
        return f"cart {' '.join(map(str, shelves.cart))}".strip()

    def _buy(self) -> tuple[str, float, bool, bool, Info]:
        cart = [item for number in self._shelves.cart if (item := self._shelves.look(number)) is not None]
        reward = self._settings._reward_of(self._request, cart[0]) if len(cart) == 1 else 0.0
        solved = len(cart) == 1 and all(holds for holds, _ in self._request.met(cart[0]))
        return "", reward, True, False, {"solved": solved}

    def close(self) -> None:
        self._shelves.close()
