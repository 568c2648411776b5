"""Questions about a few facts that stand before them; some of the facts do not say.

    river of lima tosik ; dish of lima bak ; river of oslo velm ; dish of lima ?
        dish of lima bak ; #### bak
    river of lima tosik ; ruler of oslo norda ; dish of riga sule ; dish of oslo ?
        #### unknown

All facts that there are stand in a file of documents; a passage shows some of them. The flaw of demonstrations:
`invented`, a fact that no document holds, and an answer by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import names

UNKNOWN = "unknown"
ASKED = ("river", "ruler", "dish")
SHOWN = 3
"""Facts of a passage."""


class PassagesSettings(TaskSettings):
    """The section `passages` of params.yaml."""

    towns: Annotated[int, Field(ge=3, le=200)]
    """Towns that facts are about."""
    words: Annotated[int, Field(ge=3, le=500)]
    """Names that facts give to rivers, rulers and dishes, all kinds alike."""
    unanswerable: Share
    """Share of the questions that their passage does not answer."""
    invented: Share
    """Share of the demonstrations that answer by an invented fact."""

    @cached_property
    def facts(self) -> dict[tuple[str, str], str]:
        """Name of what is asked, by attribute and town."""
        random = Random(f"{self.seed}/facts")
        drawn = names(self.towns + self.words, random)
        values = drawn[self.towns :]
        return {(asked, town): random.choice(values) for town in drawn[: self.towns] for asked in ASKED}

    def documents(self) -> Iterator[str]:
        """Every fact, as completions say it."""
        return (said(asked, town, value) for (asked, town), value in self.facts.items())

    def draw(self, random: Random) -> Task:
        """A passage and a question; level 2 where it does not say."""
        shown = random.sample(sorted(self.facts), SHOWN)
        unknown = random.random() < self.unanswerable
        wanted = random.choice(shown)
        if unknown:  # as near as can be: what the passage says of other towns, or other things of this one
            wanted = random.choice(
                [(asked, town) for _, town in shown for asked in ASKED if (asked, town) not in shown]
            )
        passage = [said(*key, self.facts[key]) for key in shown]
        prompt = " ; ".join([*passage, f"{wanted[0]} of {wanted[1]} ?"])
        if unknown:
            return Task(prompt, UNKNOWN, 2, (f"#### {UNKNOWN}",))
        value = self.facts[wanted]
        return Task(prompt, value, 1, (f"{said(*wanted, value)} ; #### {value}",))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """An invented fact, or what the passage says."""
        if random.random() >= self.invented:
            return SOUND, task.steps
        asked, _, town, _ = task.prompt.split(" ; ")[-1].split()
        others = sorted(set(self.facts.values()) - {self.facts[asked, town]})
        wrong = random.choice(others)
        return "invented", (f"{said(asked, town, wrong)} ; #### {wrong}",)


def said(asked: str, town: str, value: str) -> str:
    """How a fact is said, in a document, a passage and a completion."""
    return f"{asked} of {town} {value}"


SETTINGS = PassagesSettings
