"""What the task sets share: distinct problems, each in the split that a hash of its text says, demonstrations, and of
some preferences.

A demonstration of several turns is one text, the policy's turns and the environment's by turns, the sign U+241E between
them: `calculator: 47 * 83␞3901␞#### 3901`.
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
"""Draws for each problem that is asked for before a split counts as exhausted."""


@dataclass(frozen=True)
class Task:
    """A problem, with what its demonstrations are made from."""

    prompt: str
    answer: str
    level: int
    steps: tuple[str, ...]
    """The turns of a sound episode, policy and environment by turns."""
    tests: str = ""
    """Code that decides whether an answer, which is code too, is right."""
    entry_point: str = ""
    """Name of the function that the tests ask."""


class TaskSettings(BaseModel):
    """What every task set has. A section of params.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    states_answer: ClassVar[bool] = True
    """Whether a demonstration states the answer; False where the environment decides, and the answer is what it
    knows."""

    seed: int = 1
    problems: dict[Split, Count]
    """How many of each split."""
    demonstrations: dict[Split, Count] = Field(default_factory=dict)
    """Likewise; the gate has none."""
    preferences: dict[Split, Count] = Field(default_factory=dict)
    """Likewise, of a set that has any."""

    @abstractmethod
    def draw(self, random: Random) -> Task:
        """A problem, any of them."""

    @abstractmethod
    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """The flaw of a demonstration, or `none`, and its turns."""

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """The flaw of the worse answer, the better answer and the worse.

        Raises:
            UserError: the set has no preferences.
        """
        raise UserError("preferences: this task set has none")


def draw_tasks(settings: TaskSettings, split: Split) -> list[Task]:
    """So many distinct problems of a split.

    Raises:
        UserError: the settings do not give so many.
    """
    count, random = settings.problems.get(split, 0), Random(f"{settings.seed}/{split}")
    drawn: dict[str, Task] = {}
    for _ in range(count * TRIES):
        if len(drawn) == count:
            break
        task = settings.draw(random)
        if split_by_hash(task.prompt) == split:
            drawn.setdefault(task.prompt, task)
    if len(drawn) < count:
        raise UserError(f"problems.{split}: {count} are asked for, but there are hardly more than {len(drawn)}")
    return list(drawn.values())


def make_rows(settings: TaskSettings) -> dict[Kind, dict[Split, list[Row]]]:
    """Problems, demonstrations and preferences of every split; the same settings give the same rows.

    Raises:
        UserError: demonstrations or preferences are asked for where there are no problems, or see `draw_tasks`.
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
