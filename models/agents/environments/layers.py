"""A student is made from a frozen teacher, block by block; the reward is its accuracy and its compression (N2N).

    prompt   teacher 17 : 200 w 0.02 , 104 w 1.31 , 200 w 0.96 , 104 w 0.05     weights and change of each block
    turns    drop | keep | drop | drop                                          the environment answers: 2 | 3 | 4
    reward   C (2 - C) A / A_teacher     A: accuracy on held-out inputs, C: one minus the share of the weights' bits

After "N2N Learning: Network to Network Compression via Policy Gradient Reinforcement Learning" (paper 351). A turn is a
choice for one block, and `asks` names the kinds of choices. The paper's first stage drops blocks, and its second one
reduces the size of each block that remains (`asks: [drop, width]`). With `bits`, the policy also chooses the precision
of each block (SimQ-NAS, paper 360). A student is measured once, however often it is chosen. The teachers are described
in `models.agents.play.teacher_network`. A problem's answer holds the seed of its teacher and its number of blocks; any
number of blocks will do, so a policy that was trained with small teachers can be measured with larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from models.agents.play.teacher_network import (
    DROPPED,
    AccuracyPredictor,
    BlockChoice,
    StudentScore,
    TeacherNetwork,
    pareto,
    teacher_network,
)
from models.answers.hidden import Hidden, hidden
from models.base.bounds import Count, Share
from models.base.errors import UserError
from models.method.environment import Environment, EnvironmentEpisode, Info
from models.method.problem import Problem
from models.method.registry import part

Kind = Literal["drop", "width", "bits"]
WORDS: dict[Kind, tuple[str, ...]] = {
    "drop": ("keep", "drop"),
    "width": ("all", "half", "quarter"),
    "bits": ("8", "4", "2"),
}
"""Turns of each kind of choice."""
MOST_STUDENTS = 4096
"""Largest number of students of a problem, all of which are measured to know the best one."""


class HiddenTeacher(Hidden):
    """Hidden answer of a problem: its teacher."""

    seed: Count
    """Seed of the teacher."""
    blocks: Annotated[int, Field(ge=1, le=12)]
    """Number of its blocks."""


@part("layers")
class LayerChoices(Environment):
    """Choices of the layers of a student: which are kept, how wide they are, and at how many bits."""

    needs_answers = True
    asks: Annotated[tuple[Kind, ...], Field(min_length=1, max_length=3)] = ("drop",)
    """Kinds of choices, in the order in which they are made: for all blocks the first, then for all that were kept the
    next. drop: keep or drop; width: all, half or quarter of the units; bits: 8, 4 or 2."""
    near: Share = 0.95
    """Share of the best measured reward of all students from which on the goal is reached."""
    predictor: Count = 0
    """Number of students that are measured to fit a ridge regression, whose prediction replaces the accuracy in the
    reward; 0: the accuracy is measured. The goal counts by the measured reward."""

    def __post_init__(self) -> None:
        if len(set(self.asks)) < len(self.asks):
            raise UserError(f"rollouts.environment.asks: {', '.join(self.asks)} has a kind twice; name each once")

    def open(self, problem: Problem) -> EnvironmentEpisode:
        """Open an episode about one problem, whose answer is `{"seed": 17, "blocks": 4}`.

        Raises:
            UserError: the answer is none of this environment, or the teacher has too many students.
        """
        known = hidden(problem, HiddenTeacher, self.name)
        count = len(_options(self.asks)) ** known.blocks
        if count > MOST_STUDENTS:
            raise UserError(
                f"problem {problem.id}: {known.blocks} blocks have {count} students, and at most {MOST_STUDENTS} are "
                "compared; use fewer blocks, or fewer kinds in rollouts.environment.asks"
            )
        return _Choosing(self, known)


@lru_cache(maxsize=16)
def _options(asks: tuple[Kind, ...]) -> tuple[BlockChoice, ...]:
    """Return all choices for a block."""
    shares = (1.0, 0.5, 0.25) if "width" in asks else (1.0,)
    bits = (8, 4, 2) if "bits" in asks else (32,)
    kept = tuple(BlockChoice(share, number) for share in shares for number in bits)
    return (*kept, DROPPED) if "drop" in asks else kept


@lru_cache(maxsize=4096)
def compared(seed: int, blocks: int, asks: tuple[Kind, ...]) -> StudentComparison:
    """Return the comparison of all students of a teacher, made once."""
    return StudentComparison(teacher_network(seed, blocks), tuple(product(_options(asks), repeat=blocks)))


class StudentComparison:
    """All students of a teacher: the best reward, the Pareto front, and predictors of their accuracy."""

    def __init__(self, teacher: TeacherNetwork, students: Sequence[tuple[BlockChoice, ...]]) -> None:
        self._teacher, self._students = teacher, students
        measured = [teacher.measure(student) for student in students]
        self.best = max(teacher.reward(each) for each in measured)
        """Largest reward."""
        self.front = [measured[index] for index in pareto(measured)]
        """Pareto table: accuracy and size of the students that no other surpasses, by increasing size."""
        self._predictors: dict[int, AccuracyPredictor] = {}

    def predicted(self, student: Sequence[BlockChoice], count: int) -> StudentScore:
        """Return the predicted accuracy of a student, from `count` students that were measured, and its size."""
        if count not in self._predictors:
            self._predictors[count] = AccuracyPredictor(self._teacher, self._students, count)
        return StudentScore(self._predictors[count](student), self._teacher.measure(student).size)


class _Choosing:
    def __init__(self, settings: LayerChoices, known: HiddenTeacher) -> None:
        self._settings, self._known = settings, known
        self._words: list[dict[Kind, str]] = []
        self._queue: list[tuple[int, Kind]] = []

    def reset(self, seed: int) -> tuple[str, Info]:
        self._words = [{} for _ in range(self._known.blocks)]
        self._queue = [(block, kind) for kind in self._settings.asks for block in range(self._known.blocks)]
        return "", self._info()

    def _info(self) -> Info:
        block, kind = self._queue[0]
        return {"state": f"{kind} {block + 1} {self._words}", "actions": WORDS[kind], "solved": False}

    def step(self, turn: str) -> tuple[str, float, bool, bool, Info]:
        block, kind = self._queue[0]
        word = turn.strip()
        if word not in WORDS[kind]:
            return f"error: {', '.join(WORDS[kind])}", 0.0, False, False, self._info()
        self._queue.pop(0)
        self._words[block][kind] = word
        if word == "drop":
            self._queue = [each for each in self._queue if each[0] != block]
        if self._queue:
            return self._next(kind), 0.0, False, False, self._info()
        return self._outcome()

    def _next(self, before: Kind) -> str:
        """Return the number of the next block, and the kind of choice if it is another one."""
        block, kind = self._queue[0]
        return str(block + 1) if kind == before else f"{kind} {block + 1}"

    def _outcome(self) -> tuple[str, float, bool, bool, Info]:
        settings, known = self._settings, self._known
        comparison = compared(known.seed, known.blocks, settings.asks)
        teacher, student = teacher_network(known.seed, known.blocks), [_choice(words) for words in self._words]
        measured = teacher.measure(student)
        judged = comparison.predicted(student, settings.predictor) if settings.predictor else measured
        solved = teacher.reward(measured) >= settings.near * comparison.best - 1e-12
        front = ", on the Pareto front" if measured in comparison.front else ""
        text = f"accuracy {measured.accuracy:.3f} of {teacher.accuracy:.3f}, size {measured.size:.3f}{front}"
        return text, teacher.reward(judged), True, False, {"solved": solved}

    def close(self) -> None:
        return None


def _choice(words: dict[Kind, str]) -> BlockChoice:
    """Return the choice that the words for a block make."""
    if words.get("drop") == "drop":
        return DROPPED
    share = {"all": 1.0, "half": 0.5, "quarter": 0.25}[words.get("width", "all")]
    return BlockChoice(share, int(words.get("bits", "32")))
