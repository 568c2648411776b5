"""Instructions to write a few words under constraints that a program checks.

    write 4 words , start with red , end with sun        red tree hill sun

The flaws of demonstrations: `short`, a word too few; `forgot`, the first constraint after the number is not met. A
problem's level is the number of its constraints.
"""

from __future__ import annotations

import json
from random import Random
from typing import ClassVar, Literal

from models.answers.constraints import Constraint, Constraints, met
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

WORDS = ("bird", "fish", "gold", "hill", "lake", "moon", "rain", "red", "rock", "sea", "sky", "star", "sun", "tree")
LENGTHS = (3, 4, 5)
Asked = Literal["starts", "ends", "contains", "forbids"]
SAID: dict[Asked, str] = {
    "starts": "start with {}", "ends": "end with {}", "contains": "use {}", "forbids": "no {}",
}  # fmt: skip


class InstructionsSettings(TaskSettings):
    """The section `instructions` of params.yaml."""

    states_answer: ClassVar[bool] = False
    short: Share
    """Share of the demonstrations with one word too few."""
    forgot: Share
    """Share of the others that do not meet a constraint."""

    def draw(self, random: Random) -> Task:
        """Draw a number of words and one or two further constraints, each about a different word."""
        length = random.choice(LENGTHS)
        kinds = random.sample(list(SAID), random.randint(1, 2))
        asked = dict(zip(kinds, random.sample(WORDS, len(kinds)), strict=True))
        prompt = " , ".join([f"write {length} words", *(SAID[kind].format(word) for kind, word in asked.items())])
        counted = Constraint(kind="words", least=length, most=length)
        constraints = Constraints(
            constraints=(counted, *(Constraint(kind=kind, text=word) for kind, word in asked.items()))
        )
        text = _written(random, length, asked)
        answer = constraints.model_dump_json(exclude_defaults=True)
        return Task(prompt, answer, len(constraints.constraints), (text,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: one word too few, a constraint that is not met, or a sound text."""
        constraints = Constraints.model_validate(json.loads(task.answer))
        length = constraints.constraints[0].least
        asked: dict[Asked, str] = {
            each.kind: each.text
            for each in constraints.constraints
            if each.kind in SAID  # leaves out the number of words
        }
        if random.random() < self.short:
            return "short", (_written(random, length - 1, asked),)
        if random.random() < self.forgot:
            asked.pop(next(iter(asked)))
        text = _written(random, length, asked)
        return (SOUND if all(met(text, constraints)) else "forgot"), (text,)


def _written(random: Random, length: int, asked: dict[Asked, str]) -> str:
    """Draw words that meet the constraints, as far as the length allows."""
    free = [word for word in WORDS if word not in asked.values()]
    words = [random.choice(free) for _ in range(length)]
    if "contains" in asked:
        words[random.randrange("starts" in asked, max(1 + ("starts" in asked), length - ("ends" in asked)))] = asked[
            "contains"
        ]
    if "starts" in asked:
        words[0] = asked["starts"]
    if "ends" in asked:
        words[-1] = asked["ends"]
    return " ".join(words)


SETTINGS = InstructionsSettings
