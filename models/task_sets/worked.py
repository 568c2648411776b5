"""Settings shared by the task sets of multi-step arithmetic: problems like those of the built-in data set."""

from __future__ import annotations

from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from models.datasets.arithmetic import OPERATIONS, ArithmeticProblem, Operation
from models.task_sets.drawing import TaskSettings


class WorkedSettings(TaskSettings):
    """Settings from which problems are drawn."""

    start: tuple[int, int]
    """Smallest and largest number that a problem starts with."""
    operand: tuple[int, int]
    """Smallest and largest number that is added or subtracted."""
    levels: list[Annotated[int, Field(ge=1, le=6)]]
    """Numbers of operations of a problem, drawn with equal probability."""

    @model_validator(mode="after")
    def _problems_exist(self) -> Self:
        for name in ("start", "operand"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name}: {low} to {high} is not a range of numbers above zero")
        if not self.levels:
            raise ValueError("levels: at least one is required")
        return self

    def problem(self, random: Random) -> ArithmeticProblem:
        """Draw a problem of any of the levels."""
        start, level = random.randint(*self.start), random.choice(self.levels)
        return ArithmeticProblem(start, tuple(self._operation(random) for _ in range(level)))

    def _operation(self, random: Random) -> Operation:
        name = random.choice(OPERATIONS)
        return Operation(name, 2 if name == "double" else random.randint(*self.operand))
