"""Damaged words with the list of their damages: a plan of small models, applied one after the other, restores them.

    shifted then dotted: s.j.w.f.s     undot shift

The flaws of demonstrations: `same_order`, the repairs in the order of the damages; `short`, without the last repair.
"""

from __future__ import annotations

from functools import cached_property
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.answers.repairs import DAMAGES, REPAIRS
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import names

UNDOES = dict(zip(DAMAGES, REPAIRS, strict=True))


class PlansSettings(TaskSettings):
    """The section `plans` of params.yaml."""

    states_answer: ClassVar[bool] = False
    words: Annotated[int, Field(ge=2, le=5000)]
    """Number of words in the vocabulary."""
    damages: tuple[int, int]
    """Minimum and maximum number of damages of a word."""
    same_order: Share
    """Share of the demonstrations that repair in the order of the damages."""
    short: Share
    """Share of the other demonstrations that leave the last repair out."""

    @cached_property
    def vocabulary(self) -> list[str]:
        """Words that can be damaged."""
        return names(self.words, Random(f"{self.seed}/words"))

    @model_validator(mode="after")
    def _range_ascends(self) -> Self:
        if not 1 <= self.damages[0] <= self.damages[1] <= len(DAMAGES):
            raise ValueError(f"damages: 1 to {len(DAMAGES)}, the fewest first")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a word and its damages; the level is the number of damages."""
        word = random.choice(self.vocabulary)
        done = random.sample(list(DAMAGES), random.randint(*self.damages))
        damaged = word
        for damage in done:
            damaged = DAMAGES[damage](damaged)
        plan = " ".join(UNDOES[damage] for damage in reversed(done))
        return Task(f"{' then '.join(done)}: {damaged}", word, len(done), (plan,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a plan in the wrong order, a plan that is too short, or a sound one."""
        steps = task.steps[0].split()
        if len(steps) > 1 and random.random() < self.same_order:
            return "same_order", (" ".join(reversed(steps)),)
        if len(steps) > 1 and random.random() < self.short:
            return "short", (" ".join(steps[:-1]),)
        return SOUND, task.steps


SETTINGS = PlansSettings
