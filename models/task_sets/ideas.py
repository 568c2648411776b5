"""Requests for ideas that state a weight for each of three sides of an idea.

    novelty 2 feasibility 0 effectiveness 1 ; known prune tune survey crop ; idea ?        search , pretrain , distil

An idea is a list of parts. It is novel as far as its parts are not known, feasible as far as they are cheap, effective
as far as they are strong; few parts are both cheap and strong. An idea is right if it has at least the smallest number
of parts, two or more, and all of them serve the side with the largest weight. Demonstrations are random ideas: they
show the form of an idea, and ignore the request.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.answers.constraints import Constraint, Constraints
from models.datasets.schema import SOUND
from models.task_sets.drawing import Task, TaskSettings

CHEAP = ("prune", "distil", "tune", "smooth", "crop", "shuffle")
"""Parts that are feasible; the others are expensive."""
STRONG = ("prune", "distil", "search", "pretrain", "simulate", "combine")
"""Parts that are effective; the others have little effect."""
PARTS = tuple(dict.fromkeys((*CHEAP, *STRONG, "annotate", "survey")))
SIDES = ("novelty", "feasibility", "effectiveness")
LEADS = 2
"""Weight of the leading side; the others have less."""


class IdeasSettings(TaskSettings):
    """The section `ideas` of params.yaml."""

    states_answer = False

    known: Annotated[int, Field(ge=1, le=8)]
    """Number of parts that are already known."""
    parts: tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=8)]]
    """Smallest and largest number of parts of an idea."""

    def draw(self, random: Random) -> Task:
        """Draw the known parts and the weights of the sides; the level is the leading side, from 1."""
        known = random.sample(PARTS, self.known)
        lead = random.randrange(len(SIDES))
        weights = [LEADS if side == lead else random.randrange(LEADS) for side in range(len(SIDES))]
        asked = " ".join(f"{side} {weight}" for side, weight in zip(SIDES, weights, strict=True))
        served = [part for part in PARTS if serves(SIDES[lead], part, known)]
        rules = Constraints(
            constraints=(
                Constraint(kind="words", least=2 * self.parts[0] - 1),  # the commas between them are words too
                *(Constraint(kind="forbids", text=part) for part in PARTS if part not in served),
            )
        )
        sound = " , ".join(random.sample(served, self.parts[0]))
        answer = rules.model_dump_json(exclude_defaults=True)
        return Task(f"{asked} ; known {' '.join(known)} ; idea ?", answer, lead + 1, (sound,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a random idea; it counts as sound, since no demonstration is to be left out."""
        return SOUND, (" , ".join(random.sample(PARTS, random.randint(*self.parts))),)


def serves(side: str, part: str, known: list[str]) -> bool:
    """Return whether a part improves a side of an idea."""
    return part not in known if side == "novelty" else part in (CHEAP if side == "feasibility" else STRONG)


SETTINGS = IdeasSettings
