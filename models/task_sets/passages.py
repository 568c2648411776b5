"""Questions about a few facts that precede them; some passages do not contain the answer.

    river of lima tosik ; dish of lima bak ; river of oslo velm ; dish of lima ?
        dish of lima bak ; #### bak
    river of lima tosik ; ruler of oslo norda ; dish of riga sule ; dish of oslo ?
        #### unknown

A file of documents holds all facts; a passage shows some of them. The flaw of demonstrations: `invented`, a fact that
no document holds, and the answer that follows from it.
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
"""Number of facts in a passage."""


class PassagesSettings(TaskSettings):
    """The section `passages` of params.yaml."""

    towns: Annotated[int, Field(ge=3, le=200)]
    """Number of towns that the facts are about."""
    words: Annotated[int, Field(ge=3, le=500)]
    """Number of names for rivers, rulers and dishes; all three kinds share them."""
    unanswerable: Share
    """Share of the questions whose passage does not contain the answer."""
    invented: Share
    """Share of the demonstrations that answer from an invented fact."""

    @cached_property
    def facts(self) -> dict[tuple[str, str], str]:
        """Value of each fact, by attribute and town."""
        random = Random(f"{self.seed}/facts")
        drawn = names(self.towns + self.words, random)
        values = drawn[self.towns :]
        return {(asked, town): random.choice(values) for town in drawn[: self.towns] for asked in ASKED}

    def documents(self) -> Iterator[str]:
        """Return every fact, in the words of the completions."""
        return (said(asked, town, value) for (asked, town), value in self.facts.items())

    def draw(self, random: Random) -> Task:
        """Draw a passage and a question; level 2 if the passage does not contain the answer."""
        shown = random.sample(sorted(self.facts), SHOWN)
        unknown = random.random() < self.unanswerable
        wanted = random.choice(shown)
        if unknown:  # a near miss: an attribute that the passage does not give, of a town in it
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
        """Return an answer from an invented fact, or from the passage."""
        if random.random() >= self.invented:
            return SOUND, task.steps
        asked, _, town, _ = task.prompt.split(" ; ")[-1].split()
        others = sorted(set(self.facts.values()) - {self.facts[asked, town]})
        wrong = random.choice(others)
        return "invented", (f"{said(asked, town, wrong)} ; #### {wrong}",)


def said(asked: str, town: str, value: str) -> str:
    """Return the text of a fact in a document, a passage or a completion."""
    return f"{asked} of {town} {value}"


SETTINGS = PassagesSettings
