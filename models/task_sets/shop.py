"""Errands in a shop, with one, two or three demands; some demonstrations buy without looking.

    shop 412: red hat < 20
    search hat | 2 $14, 5 $9 | look 2 | blue hat $14 | look 5 | red hat $9 | add 5 | cart 5 | buy

The number distinguishes shops, whose catalogues differ. A problem's level is its number of demands: the kind, the
colour, and a limit that the price must be below. The flaw of demonstrations: `hasty`, which buys any item of the kind
without looking at it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.agents.play.shelves import Item
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

KINDS = ("cap", "hat", "mug", "pen")
COLOURS = ("blue", "gray", "pink", "red")


class ShopSettings(TaskSettings):
    """The section `shop` of params.yaml."""

    states_answer: ClassVar[bool] = False
    items: Annotated[int, Field(ge=2, le=20)]
    """Number of items in a catalogue."""
    of_kind: Annotated[int, Field(ge=1, le=4)]
    """Number of items of the requested kind."""
    price: tuple[int, int]
    """Smallest and largest price."""
    levels: tuple[Annotated[int, Field(ge=1, le=3)], ...]
    """Numbers of demands of an errand, drawn with equal probability."""
    hasty: Share
    """Share of the demonstrations that buy without looking."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not 0 < self.price[0] < self.price[1]:
            raise ValueError(f"price: {self.price[0]} to {self.price[1]} is not a range of numbers above zero")
        if self.of_kind > self.items:
            raise ValueError(f"of_kind: {self.of_kind} is more than the number of items")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a catalogue and an errand that at least one item of it meets."""
        level, kind = random.choice(self.levels), random.choice(KINDS)
        kinds = [kind] * self.of_kind + random.choices([k for k in KINDS if k != kind], k=self.items - self.of_kind)
        random.shuffle(kinds)
        items = [Item(name, random.choice(COLOURS), random.randint(*self.price)) for name in kinds]
        goal = random.choice([item for item in items if item.kind == kind])
        wanted: dict[str, str | int] = {"kind": kind}
        prompt = kind
        if level > 1:
            wanted["colour"], prompt = goal.colour, f"{goal.colour} {kind}"
        if level > 2:
            wanted["under"] = random.randint(goal.price + 1, self.price[1] + 1)
            prompt = f"{prompt} < {wanted['under']}"
        answer = json.dumps({"items": items, **wanted})
        steps = errand(items, kind, str(wanted.get("colour", "")), int(wanted.get("under", 0)))
        return Task(f"shop {random.randint(100, 999)}: {prompt}", answer, level, steps)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a hasty purchase, or the turns of a sound errand."""
        if random.random() >= self.hasty:
            return SOUND, task.steps
        number = random.choice(_listed(task.steps[1]))[0]
        return "hasty", (*task.steps[:2], f"add {number}", f"cart {number}", "buy")


def errand(items: Sequence[Item], kind: str, colour: str, under: int) -> tuple[str, ...]:
    """Return the turns of an errand: search, look at the cheap enough items until the colour is right, and buy.

    An empty `colour` or an `under` of 0 stands for no demand; without a colour, no item is looked at.
    """
    of_kind = [(number, item) for number, item in enumerate(items, 1) if item.kind == kind]
    turns = [f"search {kind}", ", ".join(f"{number} ${item.price}" for number, item in of_kind)]
    for number, item in of_kind:
        if under and item.price >= under:
            continue
        if colour:
            turns += [f"look {number}", f"{item.colour} {item.kind} ${item.price}"]
        if item.colour == colour or not colour:
            return (*turns, f"add {number}", f"cart {number}", "buy")
    raise AssertionError("an errand is made for an item that meets it")


def _listed(said: str) -> list[tuple[int, int]]:
    """Parse the numbers and prices of a search result."""
    pairs = [entry.split(" $") for entry in said.split(", ")]
    return [(int(number), int(price)) for number, price in pairs]


SETTINGS = ShopSettings
