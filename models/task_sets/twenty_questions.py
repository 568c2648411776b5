"""Twenty questions about a secret animal; some demonstrations guess too early.

    ant fox cow owl elk bat    fur? | yes | big? | no | fly? | no | #### fox

A sound demonstration asks for the attribute that best splits the remaining animals, and guesses when one is left. The
flaws of demonstrations: `hasty`, a guess after one question or none; `idle`, questions in random order.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.agents.play.questions import attributes_of, expected_information, left_after
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

ANIMALS: dict[str, tuple[str, ...]] = {
    "ant": (),
    "auk": ("fly", "wet"),
    "bat": ("fly", "fur"),
    "bee": ("fly", "tame"),
    "cat": ("fur", "tame"),
    "cow": ("big", "fur", "tame"),
    "eel": ("wet",),
    "elk": ("big", "fur"),
    "emu": ("big",),
    "fox": ("fur",),
    "hen": ("tame",),
    "hog": ("big", "tame"),
    "koi": ("tame", "wet"),
    "orca": ("big", "wet"),
    "otter": ("fur", "wet"),
    "owl": ("fly",),
    "seal": ("big", "fur", "wet"),
    "swan": ("big", "fly", "wet"),
}
"""Attributes of each animal; no two animals have the same."""


class TwentyQuestionsSettings(TaskSettings):
    """The section `twenty_questions` of params.yaml."""

    states_answer: ClassVar[bool] = False
    pool: Annotated[int, Field(ge=2, le=len(ANIMALS))]
    """Number of animals that are used, the first of the table."""
    things: Annotated[int, Field(ge=2, le=len(ANIMALS))]
    """Number of animals that a problem lists, in random order."""
    hasty: Share
    """Share of the demonstrations that guess after one question or none."""
    idle: Share
    """Share of the other demonstrations that ask in random order."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.things > self.pool:
            raise ValueError(f"things: {self.things} is more than the number of animals in the pool")
        return self

    def draw(self, random: Random) -> Task:
        """Draw some animals, one of them the secret; the level is the number of questions that the best asker needs."""
        listed = random.sample(list(ANIMALS)[: self.pool], self.things)
        things = {name: ANIMALS[name] for name in listed}
        secret = random.choice(listed)
        steps = ask(things, secret, best_question)
        answer = json.dumps({"secret": secret, "things": things})
        return Task(" ".join(listed), answer, len(steps) // 2, steps)

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a hasty guess, questions in random order, or the best questions."""
        known = json.loads(task.answer)
        things, secret = known["things"], known["secret"]
        if random.random() < self.hasty:
            turns = ask(things, secret, best_question)[: 2 * random.randint(0, 1)]
            possible = list(things)
            if turns:
                possible = left_after(things, possible, turns[0].removesuffix("?"), turns[1] == "yes")
            return "hasty", (*turns, f"#### {random.choice(possible)}")
        if random.random() < self.idle:
            asked = random.sample(attributes_of(things), len(attributes_of(things)))
            return "idle", ask(things, secret, lambda left, possible: asked.pop())
        return SOUND, task.steps


def best_question(things: dict[str, tuple[str, ...]], possible: list[str]) -> str:
    """Return the attribute with the most expected information, the first of equals."""
    return max(attributes_of(things), key=lambda name: expected_information(things, possible, name))


def ask(
    things: dict[str, tuple[str, ...]],
    secret: str,
    choose: Callable[[dict[str, tuple[str, ...]], list[str]], str],
) -> tuple[str, ...]:
    """Return questions and answers until one thing is left, and then the guess."""
    possible, turns = list(things), []
    while len(possible) > 1:
        attribute = choose(things, possible)
        answer = attribute in things[secret]
        turns += [f"{attribute}?", "yes" if answer else "no"]
        possible = left_after(things, possible, attribute, answer)
    return (*turns, f"#### {possible[0]}")


SETTINGS = TwentyQuestionsSettings
