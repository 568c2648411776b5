"""Postcards judged by people of two tastes: most prefer praise, some prefer short postcards.

    postcard from norda in june        lovely beach , dull hotel , lovely food

Each prompt has one judge, who compares postcards consistently: a judge of the majority prefers the postcard with more
lovely things, a judge of the minority the one with fewer things. Each further lovely thing therefore pleases the
majority and displeases the minority. A postcard is right if both groups can accept it: at least `least` lovely things
and at most `most` things. The flaw of a preference is the reason why the worse postcard is worse, and so reveals the
judge's group: `dull`, `long`. Demonstrations are random postcards, most of which are not right.
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
    """Number of towns that postcards come from."""
    longest: Annotated[int, Field(ge=2, le=8)]
    """Maximum number of things in a postcard."""
    minority: Share
    """Share of the judges who prefer short postcards."""
    least: Annotated[int, Field(ge=1, le=8)]
    """Minimum number of lovely things in a right postcard."""
    most: Annotated[int, Field(ge=1, le=8)]
    """Maximum number of things in a right postcard."""

    @cached_property
    def places(self) -> list[str]:
        """Towns that postcards come from."""
        return names(self.towns, Random(f"{self.seed}/towns"))

    def draw(self, random: Random) -> Task:
        """Draw a town and a month."""
        both = Constraints(
            constraints=(
                Constraint(kind="contains", text=LOVELY, least=self.least),
                Constraint(kind="words", most=3 * self.most - 1),  # two words per thing, and the commas between them
            )
        )
        answer = both.model_dump_json(exclude_defaults=True)
        prompt = f"postcard from {random.choice(self.places)} in {random.choice(MONTHS)}"
        return Task(prompt, answer, 1, (self.write(random),))

    def write(self, random: Random) -> str:
        """Write a random postcard."""
        things = random.sample(THINGS, random.randint(1, self.longest))
        return " , ".join(f"{random.choice((LOVELY, DULL))} {thing}" for thing in things)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a random postcard; it counts as sound, so that no demonstration is left out."""
        return SOUND, (self.write(random),)

    def likes_short(self, prompt: str) -> bool:
        """Return whether the judge of a prompt belongs to the minority."""
        return Random(f"{self.seed}/taste/{prompt}").random() < self.minority

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """Return the flaw of the worse postcard, the better one and the worse one, of different value to the judge."""
        short = self.likes_short(task.prompt)
        worth = shortness if short else loveliness
        first, second = self.write(random), self.write(random)
        while worth(first) == worth(second):
            second = self.write(random)
        better, worse = sorted((first, second), key=worth, reverse=True)
        return "long" if short else "dull", better, worse


def loveliness(postcard: str) -> int:
    """Return the number of lovely things in a postcard, its value for the majority."""
    return postcard.split().count(LOVELY)


def shortness(postcard: str) -> int:
    """Return minus the number of things in a postcard, its value for the minority."""
    return -sum(postcard.split().count(thing) for thing in THINGS)


SETTINGS = TastesSettings
