"""Solutions to multi-step problems, to be judged one at a time or compared in pairs.

    judge Start with 7 . Add 5 . Take away 3 . solution 7 + 5 = 12 ; 12 - 3 = 8 ; #### 8
    7 + 5 = 12 , 12 12 right ; 12 - 3 = 9 , 8 9 wrong ; #### 1

    compare Start with 7 . Add 5 . first 7 + 5 = 12 ; #### 12 second 7 + 5 = 13 ; #### 13
    7 + 5 = 12 ; first 12 12 , 12 12 right ; second 13 12 wrong 0 ; #### first

A judge works the problem itself and writes the results of the solution next to the due ones, up to the first that
differs: the result of each step, and the answer at the end. A small model compares two numbers next to each other, and
not two texts at a glance. The score is the number of results before the one that differs, and 9 if all are right. Of
two solutions the one with the higher score is better, and neither if the scores are equal. A flawed solution has one of
the flaws of the built-in problems, ends early, or states another answer than its last result. The flaw of
demonstrations: `careless`, a wrong verdict without a critique. The questions have the wording of a training
(`models.reward_models.judges.question`). A problem's level is that of the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from random import Random
from typing import Self

from pydantic import model_validator

from models.datasets.arithmetic import FLAWS, ArithmeticProblem, Working, flawed, work
from models.datasets.schema import SOUND
from models.reward_models.judges.pairs import WORDS
from models.reward_models.judges.question import COMPARE, NOTHING, SCORE, fill
from models.task_sets.drawing import Share, Task
from models.task_sets.worked import WorkedSettings

SOUND_SCORE = 9
"""Score of a solution without a flaw; larger than any number of steps."""
BETWEEN = " ; "
"""Separator of the steps of a solution, and of the items of a list."""


class SolutionSettings(WorkedSettings):
    """Settings from which problems and their solutions, sound and flawed, are drawn."""

    value: tuple[int, int]
    """Smallest and largest result."""
    sound: Share
    """Share of the solutions without a flaw."""

    @model_validator(mode="after")
    def _values_ascend(self) -> Self:
        if self.value[0] > self.value[1]:
            raise ValueError(f"value: {self.value[0]} is larger than {self.value[1]}")
        return self

    def solvable(self, random: Random) -> ArithmeticProblem:
        """Draw a problem whose results are all within the range `value`."""
        problem = self.problem(random)
        while not work(problem).within(*self.value):
            problem = self.problem(random)
        return problem

    def solution(self, random: Random, problem: ArithmeticProblem) -> str:
        """Draw a solution such as a policy may write, sound or flawed."""
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
        """Draw a question about one solution or two, and its answer."""
        problem = self.solvable(random)
        mine = self.solution(random, problem)
        if random.random() >= self.compared:
            question = fill(SCORE, {"prompt": problem.prompt, "completion": mine})
            return Task(question, str(score_of(problem, mine)), problem.level, (critique(problem, mine),))
        other = self.solution(random, problem)
        question = fill(COMPARE, {"prompt": problem.prompt, "first": mine, "second": other})
        return Task(question, better(problem, mine, other), problem.level, (comparison(problem, mine, other),))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a critique with its verdict, or a wrong verdict."""
        if random.random() >= self.careless:
            return SOUND, task.steps
        verdicts = WORDS if task.answer in WORDS else [str(score) for score in (*range(task.level + 1), SOUND_SCORE)]
        return "careless", (f"#### {random.choice([said for said in verdicts if said != task.answer])}",)


def score_of(problem: ArithmeticProblem, solution: str) -> int:
    """Return the number of results before the first that differs, or SOUND_SCORE."""
    return held(problem, solution)[0]


def better(problem: ArithmeticProblem, mine: str, other: str) -> str:
    """Return the solution with the higher score: first, second or neither."""
    return preferred(held(problem, mine), held(problem, other))[0]


def preferred(mine: tuple[int, str], other: tuple[int, str]) -> tuple[str, list[str]]:
    """Return the word of the higher score, first, second or neither, and the text of each under its own word."""
    answer = WORDS[2] if mine[0] == other[0] else WORDS[mine[0] < other[0]]
    return answer, [f"{word} {said}" for word, (_, said) in zip(WORDS[:2], (mine, other), strict=True)]


def critique(problem: ArithmeticProblem, solution: str) -> str:
    """Return the working, each step followed by the solution's result, up to the first that differs, and the score."""
    sound = work(problem)
    score, pairs = side_by_side(results(sound.text), results(solution))
    said = [f"{pair} {'right' if at < score else 'wrong'}" for at, pair in enumerate(pairs)]
    worked = [f"{line.text} , {judged}" for line, judged in zip(sound.lines, said, strict=False)]
    return BETWEEN.join([*worked, *said[problem.level :], f"#### {score}"])


def comparison(problem: ArithmeticProblem, mine: str, other: str) -> str:
    """Return the working, the results of both solutions next to the due ones, and the better one."""
    answer, said = preferred(held(problem, mine), held(problem, other))
    return BETWEEN.join([*(line.text for line in work(problem).lines), *said, f"#### {answer}"])


def held(problem: ArithmeticProblem, solution: str) -> tuple[int, str]:
    """Return the score of a solution, and its results next to the due ones."""
    return beside(results(work(problem).text), results(solution))


def results(solution: str) -> list[str]:
    """Return the result of each step and the stated answer, [steps + 1]."""
    return [result(step) for step in solution.split(BETWEEN)]


def result(step: str) -> str:
    """Return the result of a step: its last word."""
    return step.rpartition(" ")[2]


def side_by_side(due: Sequence[str], made: Sequence[str]) -> tuple[int, list[str]]:
    """Return the number of results before the first that differs from the due one, or SOUND_SCORE if none does, and
    each result with the due one, up to that first."""
    pairs = list(zip_longest(made, due, fillvalue=NOTHING))
    same = next((at for at, (mine, other) in enumerate(pairs) if mine != other), SOUND_SCORE)
    return same, [f"{mine} {other}" for mine, other in pairs[: same + 1]]


def beside(due: Sequence[str], made: Sequence[str]) -> tuple[int, str]:
    """Return the score of `side_by_side`, and its pairs in a line that ends with the verdict."""
    same, pairs = side_by_side(due, made)
    said = " , ".join(pairs)
    return same, f"{said} right" if same == SOUND_SCORE else f"{said} wrong {same}"


SETTINGS = JudgingSettings
