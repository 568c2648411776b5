"""Replies of a user to a solution of a multi-step problem: pleased if it is right, displeased otherwise.

    Start with 7 . Add 5 . solution 7 + 5 = 12 ; #### 12 user        thanks that is right

A model trained on such dialogues gives the likelihood of each reply after an answer
(`models.parts.rewards.models.follow_up`). The flaw of demonstrations: `careless`, a user who is pleased with a wrong
solution, or displeased with a right one. Solutions have the flaws of those in `judging`. A problem's answer is `right`
or `wrong`, which the demonstrations do not state.
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
"""Text before the user's words."""


class FollowUpsSettings(SolutionSettings):
    """The section `follow_ups` of params.yaml."""

    states_answer: ClassVar[bool] = False
    careless: Share
    """Share of the demonstrations whose user replies the opposite."""

    def draw(self, random: Random) -> Task:
        """Draw a problem with a solution, and the reply to it."""
        problem = self.solvable(random)
        solution = self.solution(random, problem)
        right = solution == work(problem).text
        said = random.choice(PLEASED if right else DISPLEASED)
        talk = TALK.replace("{prompt}", problem.prompt).replace("{completion}", solution)
        return Task(talk, "right" if right else "wrong", problem.level, (said,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw the reply of a user who has checked the solution, or of a careless one."""
        right = task.answer == "right"
        if random.random() < self.careless:
            return "careless", (random.choice(DISPLEASED if right else PLEASED),)
        return SOUND, (random.choice(PLEASED if right else DISPLEASED),)


SETTINGS = FollowUpsSettings
