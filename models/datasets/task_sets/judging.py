"""Solutions to multi-step problems that somebody has to judge, one by itself or two against each other.

    judge Start with 7 . Add 5 . Take away 3 . solution 7 + 5 = 12 ; 12 - 3 = 8 ; #### 8
    7 + 5 = 12 right ; 12 - 3 = 9 wrong ; #### 1

    compare Start with 7 . Add 5 . first 7 + 5 = 12 ; #### 12 second 7 + 5 = 13 ; #### 13
    7 + 5 = 12 ; first right ; second wrong ; #### first

A judge works the problem itself and holds it against what it reads, step by step, up to the first that differs. The
score is the number of steps before that, and 9 where all is right. Of two the one with the higher score is better, and
neither where both are alike. A flawed solution has one of the flaws of the built-in problems, ends early, or states
another answer than it comes to. The flaw of demonstrations: `careless`, a wrong verdict and no critique. What is
asked is worded as judges are asked in a training (`models.judges.question`). A problem's level is that of the solution.
"""

from __future__ import annotations

from random import Random
from typing import Self

from pydantic import model_validator

from models.datasets.arithmetic import FLAWS, Problem, Working, flawed, work
from models.datasets.task_sets.drawing import SOUND, Share, Task
from models.datasets.task_sets.worked import WorkedSettings
from models.judges.pairs import WORDS
from models.judges.question import COMPARE, SCORE, fill

SOUND_SCORE = 9
"""Of a solution without a flaw; more than any has steps."""


class SolutionSettings(WorkedSettings):
    """What problems and their solutions, sound and flawed, are drawn from."""

    value: tuple[int, int]
    """Smallest and largest result."""
    sound: Share
    """Share of the solutions without a flaw."""

    @model_validator(mode="after")
    def _values_ascend(self) -> Self:
        if self.value[0] > self.value[1]:
            raise ValueError(f"value: {self.value[0]} is larger than {self.value[1]}")
        return self

    def solvable(self, random: Random) -> Problem:
        """A problem whose results all lie within the range."""
        problem = self.problem(random)
        while not work(problem).within(*self.value):
            problem = self.problem(random)
        return problem

    def solution(self, random: Random, problem: Problem) -> str:
        """A solution, as a policy may write one."""
        sound = work(problem)
        if random.random() < self.sound:
            return sound.text
        kind = random.choice((*FLAWS, *FLAWS, "early", "other"))
        if kind == "early" and problem.level > 1:
            return Working(sound.lines[: random.randrange(1, problem.level)]).text
        if kind in FLAWS:
            workings = flawed(problem, kind, *self.value)
            if workings:
                return random.choice(workings).text
        stated = random.choice([value for value in sound.values[:-1] if value != sound.answer] or [sound.answer + 1])
        return f"{sound.text.rpartition(' ')[0]} {stated}"


class JudgingSettings(SolutionSettings):
    """The section `judging` of params.yaml."""

    compared: Share
    """Share of the questions that compare two solutions."""
    careless: Share
    """Share of the demonstrations whose verdict is wrong."""

    def draw(self, random: Random) -> Task:
        """A question about one solution or two, and its answer."""
        problem = self.solvable(random)
        mine = self.solution(random, problem)
        if random.random() >= self.compared:
            question = fill(SCORE, {"prompt": problem.prompt, "completion": mine})
            return Task(question, str(score_of(problem, mine)), problem.level, (critique(problem, mine),))
        other = self.solution(random, problem)
        question = fill(COMPARE, {"prompt": problem.prompt, "first": mine, "second": other})
        return Task(question, better(problem, mine, other), problem.level, (comparison(problem, mine, other),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """A critique with its verdict, or a wrong verdict."""
        if random.random() >= self.careless:
            return SOUND, task.steps
        verdicts = WORDS if task.answer in WORDS else [str(score) for score in (*range(task.level + 1), SOUND_SCORE)]
        return "careless", (f"#### {random.choice([said for said in verdicts if said != task.answer])}",)


def score_of(problem: Problem, solution: str) -> int:
    """Steps before the first that differs, or SOUND_SCORE."""
    sound = work(problem)
    return SOUND_SCORE if solution == sound.text else _same(problem, solution)


def better(problem: Problem, mine: str, other: str) -> str:
    """Which of two solutions has the higher score: first, second or neither."""
    scores = score_of(problem, mine), score_of(problem, other)
    return WORDS[2] if scores[0] == scores[1] else WORDS[scores[0] < scores[1]]


def critique(problem: Problem, solution: str) -> str:
    """The working step by step with what it says of the solution, and the score."""
    sound, same, score = work(problem), _same(problem, solution), score_of(problem, solution)
    said = [f"{line.text} right" for line in sound.lines[:same]]
    if same < problem.level:
        said.append(f"{sound.lines[same].text} wrong")
    elif score != SOUND_SCORE:
        said.append("answer wrong")
    return " ; ".join([*said, f"#### {score}"])


def comparison(problem: Problem, mine: str, other: str) -> str:
    """The working, what it says of both solutions, and which is better."""
    lines = " ; ".join(line.text for line in work(problem).lines)
    said = [
        f"{word} right" if score_of(problem, solution) == SOUND_SCORE else f"{word} wrong {_same(problem, solution)}"
        for word, solution in zip(WORDS[:2], (mine, other), strict=True)
    ]
    return " ; ".join([lines, *said, f"#### {better(problem, mine, other)}"])


def _same(problem: Problem, solution: str) -> int:
    """Steps of a solution before the first that differs from the sound working."""
    written = solution.split(" ; ")[:-1]
    steps = [line.text for line in work(problem).lines]
    differing = (place for place, step in enumerate(steps) if place >= len(written) or written[place] != step)
    return next(differing, len(steps))


SETTINGS = JudgingSettings
