"""What a user says next after a solution to a multi-step problem: pleased where it is right, and else not.

    Start with 7 . Add 5 . solution 7 + 5 = 12 ; #### 12 user        thanks that is right

A model that has seen such talks tells how likely each saying is after an answer
(`models.parts.rewards.models.follow_up`). The flaw of demonstrations: `careless`, a user who is pleased with a wrong
solution, or displeased with a right one. A solution is flawed as those of `judging` are. A problem's answer is `right`
or `wrong`, which no saying states.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.datasets.arithmetic import work
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.judging import SolutionSettings

PLEASED = ("thanks that is right", "great this helps me", "yes now it is clear")
DISPLEASED = ("no that is wrong", "this does not help me", "please look at it again")
TALK = "{prompt} solution {completion} user"
"""What stands before the user's words."""


class FollowUpsSettings(SolutionSettings):
    """The section `follow_ups` of params.yaml."""

    states_answer: ClassVar[bool] = False
    careless: Share
    """Share of the demonstrations whose user says the opposite."""

    def draw(self, random: Random) -> Task:
        """A problem with a solution, and what is said of it."""
        problem = self.solvable(random)
        solution = self.solution(random, problem)
        right = solution == work(problem).text
        said = random.choice(PLEASED if right else DISPLEASED)
        talk = TALK.replace("{prompt}", problem.prompt).replace("{completion}", solution)
        return Task(talk, "right" if right else "wrong", problem.level, (said,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """What a user says who has looked, or one who has not."""
        right = task.answer == "right"
        if random.random() < self.careless:
            return "careless", (random.choice(DISPLEASED if right else PLEASED),)
        return SOUND, (random.choice(PLEASED if right else DISPLEASED),)


SETTINGS = FollowUpsSettings
