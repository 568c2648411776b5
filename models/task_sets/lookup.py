"""Questions about invented places that nobody knows by heart: a search over documents is at hand.

    river of Velmo?               search: river of Velmo | river of Velmo: Tosik | #### Tosik
    river of capital of Norda?    search: capital of Norda | capital of Norda: Velmo | search: river of Velmo | ...

The flaws of demonstrations: `guessed`, an answer without a look, which is another place's; `half_way`, the town where
its river was asked for.
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
    """Lands that there are; the documents say five facts of each."""
    guessed: Share
    """Share of the demonstrations that answer without a look."""
    half_way: Share
    """Share of the others, of two looks, that answer after the first."""

    @cached_property
    def places(self) -> Places:
        """What there is to ask about."""
        return invent(self.lands, self.seed)

    def documents(self) -> Iterator[str]:
        """What can be looked up."""
        return self.places.documents()

    def draw(self, random: Random) -> Task:
        """A question of one look (level 1) or two (level 2)."""
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
        """A guess, an answer half way, or a sound search."""
        if random.random() < self.guessed:
            others = [known for known in self.places.facts.values() if task.answer not in known.values()]
            return "guessed", (f"#### {random.choice(others)[task.prompt.split()[0]]}",)
        if task.level == 2 and random.random() < self.half_way:
            return "half_way", (*task.steps[:2], f"#### {task.steps[1].split()[-1]}")
        return SOUND, task.steps


def look(attribute: str, place: str, value: str) -> tuple[str, str]:
    """A look and what it shows."""
    return f"search: {attribute} of {place}", fact(attribute, place, value)


SETTINGS = LookupSettings
