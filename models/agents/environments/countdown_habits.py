"""Countdown, with demonstrations that show cognitive behaviours before the expression (Four Habits, paper 96).

    goal 64-8=56           backward: a step back from the target
    first 3+5=8            subgoals: a step towards it
    3*8+5=29 no            verification, and backtracking from a miss
    (3+5)*8                the expression; only the last line is evaluated

The warm start reads these demonstrations in addition to those of the data. Four sets are compared: with or without the
behaviours, and with an expression that reaches the target or misses it. All four are made from the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from models.agents.environments.countdown import Countdown
from models.agents.play.arithmetic_target import value_of
from models.agents.tools.calculator import written
from models.base.bounds import Positive
from models.datasets.schema import TURNS
from models.method.registry import part

_PROMPT = re.compile(r"(?P<numbers>\d+(?: \d+)+) -> (?P<target>\d+)")


@part("countdown_habits")
class CountdownHabits(Countdown):
    """Countdown with demonstrations of behaviours for the warm start."""

    shown: bool = True
    """Whether the demonstrations show behaviours before the expression."""
    correct: bool = True
    """Whether their expression reaches the target; false: it misses it."""
    copies: Positive = 3
    """Demonstrations made of each row that reaches the target, with other steps in each."""

    @property
    def most_lessons(self) -> int:
        """Number of demonstrations that a row gives."""
        return self.copies

    def lessons(self, name: str, prompt: str, solution: str, right: bool) -> Sequence[tuple[str, str]]:
        """Return demonstrations made of one of the data; none if it misses the target.

        The steps depend on `name` alone, so that they are the same with a right and with a wrong expression.
        """
        stated = _PROMPT.fullmatch(prompt)
        if stated is None:
            return ()
        numbers, target = [int(word) for word in stated["numbers"].split()], int(stated["target"])
        expression = solution.split(TURNS)[-1]
        if not _reaches(expression, numbers, target):
            return ()
        random = Random(f"countdown_habits {name}")
        made = []
        for _ in range(self.copies):
            steps, miss = _steps(random, numbers, target), _miss(random, numbers, target)
            lines = [*(steps if self.shown else ()), expression if self.correct else miss]
            made.append((prompt, "\n".join(lines)))
        return made


def _steps(random: Random, numbers: list[int], target: int) -> list[str]:
    """Return lines that show all four behaviours."""
    last = random.choice(numbers)
    first, second = random.sample(numbers, 2)
    part_of_it = f"{first}{random.choice('+-*')}{second}"
    tried = _miss(random, numbers, target)
    return [
        f"goal {target}-{last}={target - last}",
        f"first {part_of_it}={written(value_of(part_of_it, [first, second]))}",
        f"{tried}={written(value_of(tried, numbers))} no",
    ]


def _miss(random: Random, numbers: list[int], target: int) -> str:
    """Draw an expression of the numbers that misses the target."""
    while True:
        first, *others = random.sample(numbers, len(numbers))
        expression = str(first) + "".join(f"{random.choice('+-*')}{number}" for number in others)
        if not _reaches(expression, numbers, target):
            return expression


def _reaches(expression: str, numbers: Sequence[int], target: int) -> bool:
    try:
        return value_of(expression, numbers) == target
    except ValueError:
        return False
