"""Products and sums that are hard to do in the head: a calculator is available; half of the demonstrations guess.

    47 * 83 + 12 = ?    calculator: 47 * 83 + 12 | 3913 | #### 3913

The flaws of demonstrations: `guessed`, an answer without a call that is slightly off; `miscopied`, a call with one
wrong digit, and the answer that the calculator then returns.
"""

from __future__ import annotations

from random import Random
from typing import Self

from pydantic import model_validator

from models.agents.tools.calculator import Calculator
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings


class CalculatorSettings(TaskSettings):
    """The section `calculator` of params.yaml."""

    factor: tuple[int, int]
    """Smallest and largest factor."""
    summand: tuple[int, int]
    """Smallest and largest number that is added or taken away, in problems of level 2."""
    guessed: Share
    """Share of the demonstrations that guess."""
    miscopied: Share
    """Share of the others that copy the problem with one wrong digit."""

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name in ("factor", "summand"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: {low} to {high} is not a range of numbers above zero")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a product, or a product with a number added or taken away."""
        expression = f"{random.randint(*self.factor)} * {random.randint(*self.factor)}"
        level = random.randint(1, 2)
        if level == 2:
            expression += f" {random.choice('+-')} {random.randint(*self.summand)}"
        return Task(f"{expression} = ?", value(expression), level, called(expression))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a guess, a call with a wrong digit, or a sound call."""
        expression = task.prompt.removesuffix(" = ?")
        if random.random() < self.guessed:
            off = random.choice([-1, 1]) * random.randint(1, 200)
            return "guessed", (f"#### {int(task.answer) + off}",)
        if random.random() < self.miscopied:
            places = [place for place, sign in enumerate(expression) if sign.isdigit()]
            place = random.choice(places)
            digit = random.choice([d for d in "123456789" if d != expression[place]])
            wrong = f"{expression[:place]}{digit}{expression[place + 1 :]}"
            if value(wrong) != task.answer:
                return "miscopied", called(wrong)
        return SOUND, task.steps


def value(expression: str) -> str:
    """Return the value that the calculator computes."""
    return Calculator().call(expression)


def called(expression: str) -> tuple[str, ...]:
    """Return an episode that calls the calculator and repeats its result."""
    answer = value(expression)
    return (f"calculator: {expression}", answer, f"#### {answer}")


SETTINGS = CalculatorSettings
