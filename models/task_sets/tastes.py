"""Postcards that people of two tastes judge: most like what is praised, some like what is short.

    postcard from norda in june        lovely beach , dull hotel , lovely food

Each prompt is put before one person, who compares postcards and says the same of them each time: one of the majority
prefers the postcard with more that is lovely, one of the minority the one with fewer things. Every further thing that
is lovely pleases the ones and tires the others. Right is what both can live with: `least` lovely things and `most`
things at most. The flaw of preferences is why the worse one is worse, and so tells who judged: `dull`, `long`.
Demonstrations are any postcards, most of them right for nobody.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.answers.constraints import Constraint, Constraints
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import names

MONTHS = "january february march april may june july august september october november december".split()
THINGS = ("beach", "hotel", "food", "market", "harbour", "garden", "museum", "weather")
LOVELY, DULL = "lovely", "dull"


class TastesSettings(TaskSettings):
    """The section `tastes` of params.yaml."""

    states_answer = False

    towns: Annotated[int, Field(ge=3, le=500)]
    """Where postcards come from."""
    longest: Annotated[int, Field(ge=2, le=8)]
    """Things of a postcard, at most."""
    minority: Share
    """Share of the people who like what is short."""
    least: Annotated[int, Field(ge=1, le=8)]
    """Lovely things of a postcard that is right."""
    most: Annotated[int, Field(ge=1, le=8)]
    """Its things at most."""

    @cached_property
    def places(self) -> list[str]:
        """The towns."""
        return names(self.towns, Random(f"{self.seed}/towns"))

    def draw(self, random: Random) -> Task:
        """A town and a month."""
        both = Constraints(
            constraints=(
                Constraint(kind="contains", text=LOVELY, least=self.least),
                Constraint(kind="words", most=3 * self.most - 1),  # two words a thing, and the commas between them
            )
        )
        answer = both.model_dump_json(exclude_defaults=True)
        prompt = f"postcard from {random.choice(self.places)} in {random.choice(MONTHS)}"
        return Task(prompt, answer, 1, (self.write(random),))

    def write(self, random: Random) -> str:
        """Any postcard."""
        things = random.sample(THINGS, random.randint(1, self.longest))
        return " , ".join(f"{random.choice((LOVELY, DULL))} {thing}" for thing in things)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Any postcard; sound, for nothing of it is to be left out."""
        return SOUND, (self.write(random),)

    def likes_short(self, prompt: str) -> bool:
        """Whether who judges the postcards of a prompt is of the minority."""
        return Random(f"{self.seed}/taste/{prompt}").random() < self.minority

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """Two postcards that differ in what counts for who judges them."""
        short = self.likes_short(task.prompt)
        worth = shortness if short else loveliness
        first, second = self.write(random), self.write(random)
        while worth(first) == worth(second):
            second = self.write(random)
        better, worse = sorted((first, second), key=worth, reverse=True)
        return "long" if short else "dull", better, worse


def loveliness(postcard: str) -> int:
    """Lovely things of a postcard: what the majority likes."""
    return postcard.split().count(LOVELY)


def shortness(postcard: str) -> int:
    """Less what a postcard tells of: what the minority likes."""
    return -sum(postcard.split().count(thing) for thing in THINGS)


SETTINGS = TastesSettings
