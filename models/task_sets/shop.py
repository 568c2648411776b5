"""Errands in a shop, of one, two or three demands; half of the demonstrations buy without looking.

    shop 412: red hat < 20
    search hat | 2 $14, 5 $9 | look 2 | blue hat $14 | look 5 | red hat $9 | add 5 | cart 5 | buy

The number tells shops apart, whose catalogues differ. A problem's level is how many demands it has: the kind, the
colour, a price that is not reached. The flaw of demonstrations: `hasty`, which takes any item of the kind unseen.
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
    """Of a catalogue."""
    of_kind: Annotated[int, Field(ge=1, le=4)]
    """How many of them are of the kind that is asked for."""
    price: tuple[int, int]
    """Smallest and largest price."""
    levels: tuple[Annotated[int, Field(ge=1, le=3)], ...]
    """How many demands errands have, each as often."""
    hasty: Share
    """Share of the demonstrations that do not look."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not 0 < self.price[0] < self.price[1]:
            raise ValueError(f"price: {self.price[0]} to {self.price[1]} is no range of numbers above zero")
        if self.of_kind > self.items:
            raise ValueError(f"of_kind: {self.of_kind} is more than there are items")
        return self

    def draw(self, random: Random) -> Task:
        """A catalogue, and an errand that some item of it meets."""
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
        """A purchase unseen, or one of what was looked at."""
        if random.random() >= self.hasty:
            return SOUND, task.steps
        number = random.choice(_listed(task.steps[1]))[0]
        return "hasty", (*task.steps[:2], f"add {number}", f"cart {number}", "buy")


def errand(items: Sequence[Item], kind: str, colour: str, under: int) -> tuple[str, ...]:
    """Search, look at those that are cheap enough until the colour is right, and buy."""
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
    """Numbers and prices of a search."""
    pairs = [entry.split(" $") for entry in said.split(", ")]
    return [(int(number), int(price)) for number, price in pairs]


SETTINGS = ShopSettings
