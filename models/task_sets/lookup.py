"""Questions about invented places, which no model knows by heart, answered with a search over documents.

    river of Velmo?               search: river of Velmo | river of Velmo: Tosik | #### Tosik
    river of capital of Norda?    search: capital of Norda | capital of Norda: Velmo | search: river of Velmo | ...

The flaws of demonstrations: `guessed`, an answer without a search, which is that of another place; `half_way`, the town
as the answer to a question about its river, ruler or dish.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import ASKED, Places, fact, invent


class LookupSettings(TaskSettings):
    """The section `lookup` of params.yaml."""

    lands: Annotated[int, Field(ge=2, le=2000)]
    """Number of lands; the documents hold five facts about each."""
    guessed: Share
    """Share of the demonstrations that answer without a search."""
    half_way: Share
    """Share of the other demonstrations with two searches that answer after the first."""

    @cached_property
    def places(self) -> Places:
        """Places that the questions are about."""
        return invent(self.lands, self.seed)

    def documents(self) -> Iterator[str]:
        """Return the documents that can be searched, one fact each."""
        return self.places.documents()

    def draw(self, random: Random) -> Task:
        """Draw a question that takes one search (level 1) or two (level 2)."""
        land = random.choice(list(self.places.capitals))
        town, attribute = self.places.capitals[land], random.choice(ASKED)
        answer = self.places.facts[town][attribute]
        looks = look(attribute, town, answer)
        if random.random() < 0.5:
            return Task(f"{attribute} of {town}?", answer, 1, (*looks, f"#### {answer}"))
        return Task(
            f"{attribute} of capital of {land}?", answer, 2, (*look("capital", land, town), *looks, f"#### {answer}")
        )

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a guess, an answer half way, or a sound search."""
        if random.random() < self.guessed:
            others = [known for known in self.places.facts.values() if task.answer not in known.values()]
            return "guessed", (f"#### {random.choice(others)[task.prompt.split()[0]]}",)
        if task.level == 2 and random.random() < self.half_way:
            return "half_way", (*task.steps[:2], f"#### {task.steps[1].split()[-1]}")
        return SOUND, task.steps


def look(attribute: str, place: str, value: str) -> tuple[str, str]:
    """Return a search and its result."""
    return f"search: {attribute} of {place}", fact(attribute, place, value)


SETTINGS = LookupSettings
