"""Questions for two models that know unlike much: the policy asks either, or both, and answers.

    ruler of Velmo?    large: ruler of Velmo | ruler of Velmo: Tosik | #### Tosik

The small one knows rivers and dishes, the large one everything, at a price. The flaws of demonstrations: `guessed`, an
answer without asking; `believed`, the small model's word where it does not know.
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
"""What the small model does not know."""


class RoutingSettings(TaskSettings):
    """The section `routing` of params.yaml."""

    lands: Annotated[int, Field(ge=2, le=2000)]
    """Lands that there are."""
    guessed: Share
    """Share of the demonstrations that ask nobody."""
    small: Share
    """Share of the others that ask the small model."""

    @cached_property
    def places(self) -> Places:
        """What there is to ask about."""
        return invent(self.lands, self.seed)

    def draw(self, random: Random) -> Task:
        """A question; level 2 is what the small model does not know."""
        town, attribute = random.choice(list(self.places.facts)), random.choice(ASKED)
        answer = self.places.facts[town][attribute]
        level = 2 if attribute == UNKNOWN else 1
        steps = (f"large: {attribute} of {town}", fact(attribute, town, answer), f"#### {answer}")
        return Task(f"{attribute} of {town}?", answer, level, steps)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """A guess, a question to the small model, or one to the large."""
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
