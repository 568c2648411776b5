"""Common base of the task sets: distinct problems, each in the split given by a hash of its prompt, demonstrations, and
preferences of some sets.

A demonstration of several turns is one text: the turns of policy and environment alternate, separated by the character
U+241E: `calculator: 47 * 83␞3901␞#### 3901`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from models.base.errors import UserError
from models.datasets.schema import TURNS, Kind, Row, Split
from models.datasets.splits import HASH_RANGES, split_by_hash

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Count = Annotated[int, Field(ge=0)]

TRIES = 200
"""Draws for each requested problem before a split counts as exhausted."""


@dataclass(frozen=True)
class Task:
    """A problem, and the data that its demonstrations are made from."""

    prompt: str
    answer: str
    level: int
    steps: tuple[str, ...]
    """Turns of a sound episode; policy and environment alternate."""
    tests: str = ""
    """Code that checks whether an answer, which is code too, is right."""
    entry_point: str = ""
    """Name of the function that the tests call."""


class TaskSettings(BaseModel):
    """Common settings of the task sets, a section of params.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    states_answer: ClassVar[bool] = True
    """Whether a demonstration states the answer; False if the environment decides, and the answer is the data that it
    decides by."""

    seed: int = 1
    problems: dict[Split, Count]
    """Number of problems of each split."""
    demonstrations: dict[Split, Count] = Field(default_factory=dict)
    """Number of demonstrations of each split; the gate has none."""
    preferences: dict[Split, Count] = Field(default_factory=dict)
    """Number of preferences of each split, for a set that has preferences; the gate has none."""

    @abstractmethod
    def draw(self, random: Random) -> Task:
        """Draw any problem of the set."""

    @abstractmethod
    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration of a problem. Return its flaw, or `none`, and its turns."""

    def split_of(self, task: Task) -> Split:
        """Return the split of a problem, by the hash of its prompt."""
        return split_by_hash(task.prompt)

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """Draw a preference. Return the flaw of the worse answer, the better answer and the worse answer.

        Raises:
            UserError: the set has no preferences.
        """
        raise UserError("preferences: this task set has none")


def draw_tasks(settings: TaskSettings, split: Split) -> list[Task]:
    """Draw the distinct problems of a split, as many as the settings request.

    Raises:
        UserError: the draws give fewer distinct problems than requested.
    """
    count, random = settings.problems.get(split, 0), Random(f"{settings.seed}/{split}")
    drawn: dict[str, Task] = {}
    for _ in range(count * TRIES):
        if len(drawn) == count:
            break
        task = settings.draw(random)
        if settings.split_of(task) == split:
            drawn.setdefault(task.prompt, task)
    if len(drawn) < count:
        raise UserError(f"problems.{split}: {count} are requested, but only about {len(drawn)} exist")
    return list(drawn.values())


def make_rows(settings: TaskSettings) -> dict[Kind, dict[Split, list[Row]]]:
    """Return problems, demonstrations and preferences of every split; the same settings give the same rows.

    Raises:
        UserError: demonstrations or preferences are requested for the gate or a split without problems, or see
            `draw_tasks`.
    """
    made: dict[Kind, dict[Split, list[Row]]] = {"problems": {}, "demonstrations": {}, "preferences": {}}
    for split in HASH_RANGES:
        tasks = draw_tasks(settings, split)
        made["problems"][split] = [
            {
                "prompt": task.prompt,
                "answer": task.answer,
                "level": task.level,
                "tests": task.tests,
                "entry_point": task.entry_point,
            }
            for task in tasks
        ]
        for kind, asked in (("demonstrations", settings.demonstrations), ("preferences", settings.preferences)):
            if asked.get(split, 0) and (split == "gate" or not tasks):
                raise UserError(f"{kind}.{split}: {asked[split]} rows, but the split has no problems to answer")
        made["demonstrations"][split] = _demonstrations(settings, split, tasks, settings.demonstrations.get(split, 0))
        made["preferences"][split] = _preferences(settings, split, tasks, settings.preferences.get(split, 0))
    return made


def _demonstrations(settings: TaskSettings, split: Split, tasks: Sequence[Task], count: int) -> list[Row]:
    random = Random(f"{settings.seed}/demonstrations/{split}")
    rows: list[Row] = []
    for number in range(count):
        task = tasks[number % len(tasks)]
        flaw, turns = settings.demonstrate(random, task)
        answer = task.answer if settings.states_answer else ""
        row: Row = {"prompt": task.prompt, "completion": TURNS.join(turns), "answer": answer}
        rows.append({**row, "level": task.level, "flaw": flaw})
    return rows


def _preferences(settings: TaskSettings, split: Split, tasks: Sequence[Task], count: int) -> list[Row]:
    random = Random(f"{settings.seed}/preferences/{split}")
    rows: list[Row] = []
    for number in range(count):
        task = tasks[number % len(tasks)]
        flaw, chosen, rejected = settings.prefer(random, task)
        row: Row = {"prompt": task.prompt, "chosen": chosen, "rejected": rejected}
        rows.append({**row, "level": task.level, "flaw": flaw})
    return rows
