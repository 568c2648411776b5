"""Multi-step problems, and a solver with bad habits: it can work them, but often states no answer or a rash one.

    Start with 7 . Add 5 . Take away 3 .        7 + 5 = 12 ; 12 - 3 = 9 ; #### 9

The flaws of demonstrations: `rash`, a wrong number without a working; `unstated`, a sound working without the answer.
"""

from __future__ import annotations

from random import Random

from models.datasets.arithmetic import SLIPS, work
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.worked import WorkedSettings


class HabitsSettings(WorkedSettings):
    """The section `habits` of params.yaml."""

    states_answer = False

    rash: Share
    """Share of the demonstrations that state a wrong number."""
    unstated: Share
    """Share of the others that state no answer."""

    def draw(self, random: Random) -> Task:
        """Draw a problem."""
        problem = self.problem(random)
        working = work(problem)
        return Task(problem.prompt, str(working.answer), problem.level, (working.text,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a rash answer, a working without an answer, or a sound working."""
        if random.random() < self.rash:
            return "rash", (f"#### {int(task.answer) + random.choice(SLIPS)}",)
        if random.random() < self.unstated:
            return "unstated", (task.steps[0].rpartition(" ; ")[0],)
        return SOUND, task.steps


SETTINGS = HabitsSettings
