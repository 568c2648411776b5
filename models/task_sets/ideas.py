"""Requests for ideas that say how much each of three sides of an idea weighs this time.

    novelty 2 feasibility 0 effectiveness 1 ; known prune tune survey crop ; idea ?        search , pretrain , distil

An idea is some parts. It is novel as far as its parts are not known, feasible as far as they are cheap, effective as
far as they are strong; hardly a part is both cheap and strong. Right is an idea of two parts or more all of which serve
the side that weighs most. Demonstrations are any ideas: they show what an idea is, and not what is asked for.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.answers.constraints import Constraint, Constraints
from models.datasets.schema import SOUND
from models.task_sets.drawing import Task, TaskSettings

CHEAP = ("prune", "distil", "tune", "smooth", "crop", "shuffle")
"""Parts that are feasible; the others cost much."""
STRONG = ("prune", "distil", "search", "pretrain", "simulate", "combine")
"""Parts that are effective; the others do little."""
PARTS = tuple(dict.fromkeys((*CHEAP, *STRONG, "annotate", "survey")))
SIDES = ("novelty", "feasibility", "effectiveness")
LEADS = 2
"""The weight of the side that weighs most; the others have less."""


class IdeasSettings(TaskSettings):
    """The section `ideas` of params.yaml."""

    states_answer = False

    known: Annotated[int, Field(ge=1, le=8)]
    """Parts that are known already."""
    parts: tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=8)]]
    """Fewest and most parts of an idea."""

    def draw(self, random: Random) -> Task:
        """What is known, and what an idea is to be; the level is the side that leads, from 1."""
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
        """Any idea; sound, for nothing of it is to be left out."""
        return SOUND, (" , ".join(random.sample(PARTS, random.randint(*self.parts))),)


def serves(side: str, part: str, known: list[str]) -> bool:
    """Whether a part makes an idea more of what a side is about."""
    return part not in known if side == "novelty" else part in (CHEAP if side == "feasibility" else STRONG)


SETTINGS = IdeasSettings
