"""Questions that need two tools, the one after the other: a search, and a calculator for what was looked up.

    people of Velmo * 37?    search: people of Velmo | people of Velmo: 47 | calculator: 47 * 37 | 1739 | #### 1739

The flaws of demonstrations: `guessed`, an answer without a call; `in_head`, the product as somebody gets it wrong who
looks up and does not calculate.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import Places, fact, invent


class CombinedSettings(TaskSettings):
    """The section `combined` of params.yaml."""

    lands: Annotated[int, Field(ge=2, le=2000)]
    """Lands that there are."""
    factor: tuple[int, int]
    """Smallest and largest factor."""
    guessed: Share
    """Share of the demonstrations that guess."""
    in_head: Share
    """Share of the others that look up and do not calculate."""

    @cached_property
    def places(self) -> Places:
        """What there is to ask about."""
        return invent(self.lands, self.seed)

    def draw(self, random: Random) -> Task:
        """How many people a town has (level 1), or so many times as many (level 2)."""
        town = random.choice(list(self.places.facts))
        people = self.places.facts[town]["people"]
        look = (f"search: people of {town}", fact("people", town, people))
        if random.random() < 0.3:
            return Task(f"people of {town}?", people, 1, (*look, f"#### {people}"))
        factor = random.randint(*self.factor)
        answer = str(int(people) * factor)
        calls = (*look, f"calculator: {people} * {factor}", answer)
        return Task(f"people of {town} * {factor}?", answer, 2, (*calls, f"#### {answer}"))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """A guess, a product in the head, or a sound episode."""
        off = random.choice([-1, 1]) * random.randint(1, 9)
        if random.random() < self.guessed:
            return "guessed", (f"#### {int(task.answer) + off}",)
        if task.level == 2 and random.random() < self.in_head:
            return "in_head", (*task.steps[:2], f"#### {int(task.answer) + 10 * off}")
        return SOUND, task.steps


SETTINGS = CombinedSettings
