"""Questions that need two tools in sequence: a search, and a calculator for the value that was found.

    people of Velmo * 37?    search: people of Velmo | people of Velmo: 47 | calculator: 47 * 37 | 1739 | #### 1739

The flaws of demonstrations: `guessed`, an answer without a call; `in_head`, a search without the calculator and a
wrong product.
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
    """Number of lands."""
    factor: tuple[int, int]
    """Smallest and largest factor."""
    guessed: Share
    """Share of the demonstrations that guess."""
    in_head: Share
    """Share of the others of level 2 that search and do not use the calculator."""

    @cached_property
    def places(self) -> Places:
        """The invented places and the facts about them."""
        return invent(self.lands, self.seed)

    def draw(self, random: Random) -> Task:
        """Draw a question for the number of people of a town (level 1), or for a multiple of it (level 2)."""
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
        """Draw a demonstration: a guess, a product without the calculator, or a sound episode."""
        off = random.choice([-1, 1]) * random.randint(1, 9)
        if random.random() < self.guessed:
            return "guessed", (f"#### {int(task.answer) + off}",)
        if task.level == 2 and random.random() < self.in_head:
            return "in_head", (*task.steps[:2], f"#### {int(task.answer) + 10 * off}")
        return SOUND, task.steps


SETTINGS = CombinedSettings
