"""Bandits of three arms, and episodes of an explorer that uses UCB1, or of one that pulls random arms.

    bandit 48213    a | 1 | b | 0 | c | 0 | a | 1 | ...        answer: 0.7 0.2 0.4

The number in the prompt distinguishes the problems and carries no information about the arms. The flaw of
demonstrations: `aimless`, every pull at random. UCB1 (Auer, Cesa-Bianchi and Fischer 2002) pulls every arm once, then
the arm whose mean so far plus sqrt(2 ln t / n) is largest, after t pulls in all and n of the arm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from string import ascii_lowercase
from typing import Annotated, ClassVar

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings


class BanditSettings(TaskSettings):
    """The section `bandit` of params.yaml."""

    states_answer: ClassVar[bool] = False
    arms: Annotated[int, Field(ge=2, le=26)]
    """Number of arms of every bandit."""
    pulls: Annotated[int, Field(ge=1, le=1000)]
    """Number of pulls of a demonstration."""
    aimless: Share
    """Share of the demonstrations that pull random arms."""

    def draw(self, random: Random) -> Task:
        """Draw arms whose means are tenths, all different if there are at most nine arms."""
        tenths = random.sample(range(1, 10), self.arms) if self.arms <= 9 else random.choices(range(1, 10), k=self.arms)
        means = [tenth / 10 for tenth in tenths]
        return Task(f"bandit {random.randint(0, 99999):05d}", " ".join(f"{mean:g}" for mean in means), 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration with pulls by UCB1, or at random."""
        means = [float(word) for word in task.answer.split()]
        aimless = random.random() < self.aimless
        choose: Callable[[Sequence[list[int]]], int] = (lambda seen: random.randrange(len(seen))) if aimless else ucb
        turns: list[str] = []
        for arm, given in pulled(means, self.pulls, choose, random):
            turns += [ascii_lowercase[arm], str(given)]
        return "aimless" if aimless else SOUND, tuple(turns[:-1])


def ucb(seen: Sequence[list[int]]) -> int:
    """Return the arm that UCB1 pulls next. `seen`: rewards of each arm so far, [arms] lists."""
    if not all(seen):
        return [bool(given) for given in seen].index(False)
    pulls = sum(map(len, seen))
    indices = [sum(given) / len(given) + math.sqrt(2 * math.log(pulls) / len(given)) for given in seen]
    return indices.index(max(indices))


def pulled(
    means: Sequence[float], pulls: int, choose: Callable[[Sequence[list[int]]], int], random: Random
) -> list[tuple[int, int]]:
    """Return the arm and the reward of each pull, [pulls]."""
    seen: list[list[int]] = [[] for _ in means]
    made = []
    for _ in range(pulls):
        arm = choose(seen)
        given = int(random.random() < means[arm])
        seen[arm].append(given)
        made.append((arm, given))
    return made


SETTINGS = BanditSettings
