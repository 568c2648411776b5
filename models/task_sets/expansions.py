"""Short queries to a shop's search, to be expanded so that they find the goods that are meant.

    norda rain        umbrella raincoat boots

The catalogue names goods by maker, colour and kind; it does not contain words such as `rain`. A query has several
wants, which are kinds of goods of the maker that it names, and a good expansion finds results for each of them and few
others. The flaws of demonstrations: `vague`, colours instead of kinds; `narrow`, one of the kinds; `forbidden`, a word
that the shop does not allow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import names

WANTS = {
    "rain": ("umbrella", "raincoat", "boots"),
    "beach": ("towel", "sandals", "parasol"),
    "school": ("satchel", "pencil", "ruler"),
    "winter": ("scarf", "gloves", "heater"),
    "kitchen": ("pan", "kettle", "ladle"),
    "office": ("stapler", "folder", "lamp"),
    "garden": ("spade", "hose", "seeds"),
    "journey": ("suitcase", "pillow", "adapter"),
}
"""Kinds of goods that are meant by each word of a query."""
COLOURS = ("red", "blue", "green", "grey")
ADVERTISING = ("cheapest", "free", "best")
"""Words that the shop does not allow."""


class ExpansionsSettings(TaskSettings):
    """The section `expansions` of params.yaml."""

    states_answer = False

    makers: Annotated[int, Field(ge=3, le=500)]
    """Makers of the catalogue; each has goods of every kind in two colours."""
    vague: Share
    """Share of the demonstrations that name colours."""
    narrow: Share
    """Share of the others that name one kind."""
    forbidden: Share
    """Share of the remaining demonstrations that advertise."""

    @cached_property
    def brands(self) -> list[str]:
        """Names of the makers."""
        return names(self.makers, Random(f"{self.seed}/makers"))

    def documents(self) -> Iterator[str]:
        """Yield the catalogue, one document per product."""
        random = Random(f"{self.seed}/goods")
        kinds = [kind for kinds in WANTS.values() for kind in kinds]
        for maker in self.brands:
            random.shuffle(kinds)  # ties rank the first document first: the order must favour no want
            for kind in kinds:
                yield from (f"{maker} {colour} {kind}" for colour in random.sample(COLOURS, 2))

    def draw(self, random: Random) -> Task:
        """Draw a query: a maker, in most cases a colour, and a word for the wanted goods."""
        maker, wanted = random.choice(self.brands), random.choice(list(WANTS))
        colour = random.choice(("", *COLOURS))
        kinds = list(WANTS[wanted])
        answer = json.dumps({"wants": [f"{maker} {kind}" for kind in kinds]})
        random.shuffle(kinds)
        return Task(" ".join(filter(None, (maker, colour, wanted))), answer, 1, (" ".join(kinds),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: the kinds that are meant, or one of the flaws."""
        kinds = list(WANTS[task.prompt.split()[-1]])
        random.shuffle(kinds)
        if random.random() < self.vague:
            return "vague", (" ".join(random.sample(COLOURS, 3)),)
        if random.random() < self.narrow:
            return "narrow", (kinds[0],)
        if random.random() < self.forbidden:
            return "forbidden", (" ".join([random.choice(ADVERTISING), *kinds]),)
        return SOUND, (" ".join(kinds),)


SETTINGS = ExpansionsSettings
