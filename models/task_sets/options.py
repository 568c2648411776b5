"""Multi-step problems whose answer is an option, the range that contains the result; some demonstrations only guess.

    Start with 7 . Add 5 . Take away 3 . A below 5 B 5 to 11 C 12 to 19 D 20 or more
    7 + 5 = 12 ; 12 - 3 = 9 ; #### B

The flaws of demonstrations: `guessed`, a wrong label without a working; `misread`, a sound working and a wrong label.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random
from typing import Self

from pydantic import model_validator

from models.datasets.arithmetic import work
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.worked import WorkedSettings

LABELS = "ABCD"


class OptionsSettings(WorkedSettings):
    """The section `options` of params.yaml."""

    bounds: tuple[int, int, int]
    """Smallest results of the second, third and fourth option."""
    guessed: Share
    """Share of the demonstrations that guess."""
    misread: Share
    """Share of the other demonstrations that name another option than the one that contains their result."""

    @model_validator(mode="after")
    def _bounds_ascend(self) -> Self:
        low, middle, high = self.bounds
        if not low < middle < high:
            raise ValueError(f"bounds: {low}, {middle} and {high} do not ascend")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a problem and its four options."""
        problem = self.problem(random)
        working = work(problem)
        low, middle, high = self.bounds
        options = f"A below {low} B {low} to {middle - 1} C {middle} to {high - 1} D {high} or more"
        answer = LABELS[bisect_right(self.bounds, working.answer)]
        lines = " ; ".join(line.text for line in working.lines)
        return Task(f"{problem.prompt} {options}", answer, problem.level, (f"{lines} ; #### {answer}",))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a guess, a working with a misread option, or a sound working."""
        other = random.choice([label for label in LABELS if label != task.answer])
        if random.random() < self.guessed:
            return "guessed", (f"#### {other}",)
        if random.random() < self.misread:
            return "misread", (f"{task.steps[0].removesuffix(task.answer)}{other}",)
        return SOUND, task.steps


SETTINGS = OptionsSettings
