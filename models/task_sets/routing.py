"""Questions for two models, one of which knows more: the policy queries either or both, and answers.

    ruler of Velmo?    large: ruler of Velmo | ruler of Velmo: Tosik | #### Tosik

The small one knows rivers and dishes; the large one knows everything, at a price. The flaws of demonstrations:
`guessed`, an answer without a query; `believed`, the small model's answer to a question that it does not know.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import ASKED, Places, fact, invent

UNKNOWN = "ruler"
"""Attribute that the small model does not know."""


class RoutingSettings(TaskSettings):
    """The section `routing` of params.yaml."""

    lands: Annotated[int, Field(ge=2, le=2000)]
    """Number of lands."""
    guessed: Share
    """Share of the demonstrations that query neither model."""
    small: Share
    """Share of the other demonstrations that query the small model."""

    @cached_property
    def places(self) -> Places:
        """Places that the questions are about."""
        return invent(self.lands, self.seed)

    def draw(self, random: Random) -> Task:
        """Draw a question; level 2 if the small model does not know the answer."""
        town, attribute = random.choice(list(self.places.facts)), random.choice(ASKED)
        answer = self.places.facts[town][attribute]
        level = 2 if attribute == UNKNOWN else 1
        steps = (f"large: {attribute} of {town}", fact(attribute, town, answer), f"#### {answer}")
        return Task(f"{attribute} of {town}?", answer, level, steps)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a guess, a query to the small model, or one to the large model."""
        attribute, _, town = task.prompt.removesuffix("?").split()
        if random.random() < self.guessed:
            other = random.choice([known for known in self.places.facts.values() if task.answer != known[attribute]])
            return "guessed", (f"#### {other[attribute]}",)
        if random.random() >= self.small:
            return SOUND, task.steps
        said = task.answer
        if task.level == 2:
            said = random.choice([known[attribute] for known in self.places.facts.values()])
        asked = (f"small: {attribute} of {town}", fact(attribute, town, said), f"#### {said}")
        return (SOUND if said == task.answer else "believed"), asked


SETTINGS = RoutingSettings
