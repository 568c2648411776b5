"""Statements about whole numbers, and variants of each whose truth is known, to be proved or disproved.

    for all n , 4 n + 6 is even                 4 n even , 6 even , sum even ; #### proved
    for all n , 4 n + 6 is odd                  4 n even , 6 even , sum even ; #### disproved
    for all n , 4 n + 6 is divisible by 2       4 n even , 6 even , sum even ; #### proved

Variants of a theorem make different claims about the same sum; the verdict on each follows from that on the theorem.
The flaws of demonstrations: `agreed`, a false statement is accepted as true, without a proof; `misjudged`, a sound
working and the wrong verdict. A problem's level is its variant: 1 the theorem, 2 its contrary, 3 the theorem
in other words, 4 its contrary in other words.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

VERDICTS = ("proved", "disproved")
VARIANTS = ("is even", "is odd", "is divisible by 2", "is not divisible by 2")


class TheoremsSettings(TaskSettings):
    """The section `theorems` of params.yaml."""

    largest: Annotated[int, Field(ge=3, le=50)]
    """Largest number in a statement."""
    agreed: Share
    """Share of the demonstrations that accept the statement as true without a proof."""
    misjudged: Share
    """Share of the other demonstrations that have the wrong verdict."""

    def draw(self, random: Random) -> Task:
        """Draw a variant of a theorem on the parity of the sum of an even multiple of n and a number."""
        factor, number = 2 * random.randint(1, self.largest // 2), random.randint(1, self.largest)
        return variant(factor, number, random.randrange(len(VARIANTS)))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return an agreement without a proof, a sound working with the wrong verdict, or a sound one."""
        if random.random() < self.agreed:
            return (SOUND if task.answer == VERDICTS[0] else "agreed"), (f"#### {VERDICTS[0]}",)
        if random.random() < self.misjudged:
            return "misjudged", (f"{task.steps[0].rpartition(' ')[0]} {_other(task.answer)}",)
        return SOUND, task.steps


def variant(factor: int, number: int, which: int) -> Task:
    """Return a variant of the theorem on `factor` n + `number`; `which` is an index of VARIANTS."""
    parity = "odd" if number % 2 else "even"
    holds = (parity == "even") == (which % 2 == 0)
    verdict = VERDICTS[0 if holds else 1]
    working = f"{factor} n even , {number} {parity} , sum {parity} ; #### {verdict}"
    return Task(f"for all n , {factor} n + {number} {VARIANTS[which]}", verdict, which + 1, (working,))


def _other(verdict: str) -> str:
    return VERDICTS[verdict == VERDICTS[0]]


SETTINGS = TheoremsSettings
