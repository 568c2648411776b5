"""Numbers to be written backwards, in two attempts: half of the first and some of the second have a wrong digit.

    backwards 4718    #### 8717 | check: | #### 8174

The flaws of demonstrations: `wrong`, neither attempt is right; `spoiled`, only the first attempt is right.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

SAYS = "check:"
"""Text between the attempts, as the environment `second_try` has it by default."""


class SecondTrySettings(TaskSettings):
    """The section `second_try` of params.yaml."""

    digits: Annotated[int, Field(ge=2, le=12)]
    """Number of digits, none of them zero."""
    slips: Share
    """Share of the first attempts that have a wrong digit."""
    kept: Share
    """Share of the second attempts that repeat the first one."""
    slips_again: Share
    """Share of the other second attempts that have a wrong digit."""

    def draw(self, random: Random) -> Task:
        """Draw a number."""
        number = "".join(random.choice("123456789") for _ in range(self.digits))
        answer = number[::-1]
        return Task(f"backwards {number}", answer, 1, (f"#### {answer}", SAYS, f"#### {answer}"))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return two attempts, with the environment's turn between them."""
        first = _slipped(random, task.answer) if random.random() < self.slips else task.answer
        second = first
        if random.random() >= self.kept:
            second = _slipped(random, task.answer) if random.random() < self.slips_again else task.answer
        right = second == task.answer
        flaw = SOUND if right else "spoiled" if first == task.answer else "wrong"
        return flaw, (f"#### {first}", SAYS, f"#### {second}")


def _slipped(random: Random, answer: str) -> str:
    """Return `answer` with another digit at one place."""
    place = random.randrange(len(answer))
    digit = random.choice([d for d in "123456789" if d != answer[place]])
    return f"{answer[:place]}{digit}{answer[place + 1 :]}"


SETTINGS = SecondTrySettings
