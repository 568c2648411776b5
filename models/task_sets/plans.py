"""Damaged words with what was done to them: a plan of small models, one after the other, gives them back.

    shifted then dotted: s.j.w.f.s     undot shift

The flaws of demonstrations: `same_order`, the repairs in the order of the damages; `short`, the last one left out.
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
    """Words that are damaged."""
    damages: tuple[int, int]
    """Fewest and most damages of a word."""
    same_order: Share
    """Share of the demonstrations that repair in the order of the damages."""
    short: Share
    """Share of the others that leave the last repair out."""

    @cached_property
    def vocabulary(self) -> list[str]:
        """Every word."""
        return names(self.words, Random(f"{self.seed}/words"))

    @model_validator(mode="after")
    def _range_ascends(self) -> Self:
        if not 1 <= self.damages[0] <= self.damages[1] <= len(DAMAGES):
            raise ValueError(f"damages: 1 to {len(DAMAGES)}, the fewest first")
        return self

    def draw(self, random: Random) -> Task:
        """A word, damaged as often as its level says."""
        word = random.choice(self.vocabulary)
        done = random.sample(list(DAMAGES), random.randint(*self.damages))
        damaged = word
        for damage in done:
            damaged = DAMAGES[damage](damaged)
        plan = " ".join(UNDOES[damage] for damage in reversed(done))
        return Task(f"{' then '.join(done)}: {damaged}", word, len(done), (plan,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """A plan in the wrong order, too short a plan, or a sound one."""
        steps = task.steps[0].split()
        if len(steps) > 1 and random.random() < self.same_order:
            return "same_order", (" ".join(reversed(steps)),)
        if len(steps) > 1 and random.random() < self.short:
            return "short", (" ".join(steps[:-1]),)
        return SOUND, task.steps


SETTINGS = PlansSettings
