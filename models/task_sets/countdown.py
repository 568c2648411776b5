"""Numbers and a target that an expression of the numbers reaches; most demonstrations miss it.

    3 5 8 -> 64    3*8+5 | 29 | (3+5)*8

The flaws of demonstrations: `missed`, an expression of another value; `tried`, such an expression, its value, and then
one that reaches the target.
"""

from __future__ import annotations

import json
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.agents.play.arithmetic_target import value_of
from models.agents.tools.calculator import written
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings


class CountdownSettings(TaskSettings):
    """The section `countdown` of params.yaml."""

    states_answer: ClassVar[bool] = False
    numbers: Annotated[int, Field(ge=2, le=6)]
    """Number of given numbers."""
    number: tuple[int, int]
    """Smallest and largest given number."""
    target: tuple[int, int]
    """Smallest and largest target."""
    missed: Share
    """Share of the demonstrations that miss the target."""
    tried: Share
    """Share of the others that miss it first."""

    @model_validator(mode="after")
    def _ranges_ascend(self) -> Self:
        for name in ("number", "target"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: {low} to {high} is not a range of numbers above zero")
        return self

    def draw(self, random: Random) -> Task:
        """Draw numbers and the value of an expression of them; the level is one plus its number of products."""
        while True:
            numbers = sorted(random.randint(*self.number) for _ in range(self.numbers))
            expression = any_expression(random, numbers)
            value = value_of(expression, numbers)
            if value.denominator == 1 and self.target[0] <= value <= self.target[1]:
                break
        prompt = f"{' '.join(map(str, numbers))} -> {value}"
        answer = json.dumps({"numbers": numbers, "target": int(value)})
        return Task(prompt, answer, 1 + expression.count("*"), (expression,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a miss, a miss and then the target, or the target."""
        known = json.loads(task.answer)
        roll = random.random()
        if roll >= self.missed and random.random() >= self.tried:
            return SOUND, task.steps
        while True:
            other = any_expression(random, known["numbers"])
            value = value_of(other, known["numbers"])
            if value != known["target"]:
                break
        if roll < self.missed:
            return "missed", (other,)
        return "tried", (other, written(value), *task.steps)


def any_expression(random: Random, numbers: list[int]) -> str:
    """Draw an expression of all numbers in random order, with + - * equally likely and brackets where needed."""
    shuffled = random.sample(numbers, len(numbers))
    text, loose = str(shuffled[0]), False
    for number in shuffled[1:]:
        sign = random.choice("+-*")
        text = f"({text})*{number}" if sign == "*" and loose else f"{text}{sign}{number}"
        loose = sign != "*"
    return text


SETTINGS = CountdownSettings
