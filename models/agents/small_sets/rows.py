"""Rows of a small data set: distinct problems in the split of their hash, and demonstrations played in the environment.

    python -m models.agents.small_sets.rows layers recipes/agents/layers

writes `problems.jsonl` and `demonstrations.jsonl` of the set `layers` into the folder, in the format `kinds`. The same
set always gives the same bytes. A set is a file of this package with a constant `SET`. The committed files need no
stage of the data pipeline.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random

from models.agents.play.documents import as_line
from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.datasets.schema import TURNS, Row, Split
from models.datasets.splits import split_by_hash
from models.method.environment import Environment
from models.method.problem import Problem

DOCUMENTS = Path(__file__).parents[3] / "recipes/documents"
"""Folder of documents that environments read."""
TRIES = 200
"""Draws for each requested problem before a split counts as exhausted."""


@dataclass(frozen=True)
class SmallTask:
    """A problem, and what its demonstrations need to know."""

    prompt: str
    answer: str
    level: int = 1


@dataclass(frozen=True)
class SmallSet:
    """Base class of the small sets."""

    environment: Callable[[], Environment]
    """Function that makes the environment in which the demonstrations are played."""
    seed: int = 1
    problems: Mapping[Split, int] = field(default_factory=lambda: {"train": 300, "validation": 50, "gate": 120})
    """Number of problems of each split."""
    demonstrations: int = 300
    """Number of demonstrations, all about problems of the split train."""

    @abstractmethod
    def draw(self, random: Random) -> SmallTask:
        """Draw any problem of the set."""

    @abstractmethod
    def script(self, random: Random, task: SmallTask) -> tuple[str, Sequence[str]]:
        """Draw a demonstration. Returns its flaw, or `none`, and the policy's turns."""

    def is_demonstrated(self, task: SmallTask) -> bool:
        """Return whether the set may have demonstrations of a problem."""
        return True

    def documents(self) -> tuple[str, Sequence[str]]:
        """Return the documents that the environment reads, and their file in the folder of the recipes' documents."""
        return "", ()


def rows_of(small: SmallSet) -> dict[str, list[Row]]:
    """Return the rows of the problems and of the demonstrations.

    Raises:
        UserError: the draws give fewer distinct problems than requested.
    """
    tasks: dict[Split, list[SmallTask]] = {}
    for split, count in small.problems.items():
        random, drawn = Random(f"{small.seed}/{split}"), dict[str, SmallTask]()
        for _ in range(count * TRIES):
            if len(drawn) == count:
                break
            task = small.draw(random)
            if split_by_hash(task.prompt) == split:
                drawn.setdefault(task.prompt, task)
        if len(drawn) < count:
            raise UserError(f"problems.{split}: {count} are requested, but only about {len(drawn)} exist")
        tasks[split] = list(drawn.values())
    problems: list[Row] = [
        {"prompt": task.prompt, "answer": task.answer, "level": task.level, "split": split}
        for split, own in tasks.items()
        for task in own
    ]
    random, demonstrations = Random(f"{small.seed}/demonstrations"), list[Row]()
    environment = small.environment()
    demonstrated = [task for task in tasks["train"] if small.is_demonstrated(task)]
    for number in range(small.demonstrations):
        task = demonstrated[number % len(demonstrated)]
        flaw, turns = small.script(random, task)
        completion = TURNS.join(played(environment, task, turns))
        row: Row = {"prompt": task.prompt, "completion": completion, "level": task.level}
        demonstrations.append({**row, "flaw": flaw, "split": "train"})
    return {"problems": problems, "demonstrations": demonstrations}


def played(environment: Environment, task: SmallTask, turns: Sequence[str]) -> list[str]:
    """Play turns of the policy, and return them with the environment's answers between them.

    The last text is a turn of the policy. If the environment speaks first, the first turn is empty.
    """
    opened = environment.open(Problem("made", task.prompt, task.answer))
    opening, _ = opened.reset(0)
    texts = ["", opening] if opening else []
    for turn in turns:
        answer, _, terminated, truncated, _ = opened.step(turn)
        texts += [turn, answer]
        if terminated or truncated:
            break
    opened.close()
    return texts[:-1]


def write_set(small: SmallSet, folder: Path) -> None:
    """Write the rows of a set as `problems.jsonl` and `demonstrations.jsonl`, if it has any, into a folder.

    Its documents are written first, into `recipes/documents`.
    """
    file, texts = small.documents()
    if file:
        write_file(DOCUMENTS / file, "".join(as_line(text) + "\n" for text in texts))
    for kind, rows in rows_of(small).items():
        if rows:
            write_file(folder / f"{kind}.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def small_sets() -> tuple[str, ...]:
    """Return the names of all small sets, sorted."""
    return tuple(sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py") if file.stem != "rows"))


def small_set(name: str) -> SmallSet:
    """Return a set by its name.

    Raises:
        UserError: no set has this name.
    """
    if name not in small_sets():
        raise UserError(f"{name}: no such small set; use one of {', '.join(small_sets())}")
    made: SmallSet = import_module(f"models.agents.small_sets.{name}").SET
    return made


if __name__ == "__main__":
    write_set(small_set(sys.argv[1]), Path(sys.argv[2]))
