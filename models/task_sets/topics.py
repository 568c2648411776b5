"""Short texts about two of four topics each; some demonstrations name the topic that is not the main one.

    umbrella goal the striker storm said league this coach        sport

The label is the whole answer. The flaw of demonstrations: `mislabelled`, the label of the text's second topic.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

WORDS = {
    "sport": "goal striker league coach penalty stadium sprint referee medal final".split(),
    "markets": "shares bond profit auction broker dividend tariff merger budget loan".split(),
    "weather": "storm frost drizzle umbrella thunder breeze hail drought fog thaw".split(),
    "travel": "luggage passport ferry hostel platform visa airport tourist cabin harbour".split(),
}
"""Words of each topic."""
COMMON = "the this said after before again today people small late new near".split()


class TopicsSettings(TaskSettings):
    """The section `topics` of params.yaml."""

    states_answer = False

    main: Annotated[int, Field(ge=1, le=10)]
    """Number of words of the main topic, which is the right one."""
    second: Annotated[int, Field(ge=1, le=10)]
    """Number of words of the second topic; fewer than `main`."""
    common: Annotated[int, Field(ge=0, le=12)]
    """Number of words of no topic."""
    mislabelled: Share
    """Share of the demonstrations that name the second topic."""

    @model_validator(mode="after")
    def _main_leads(self) -> Self:
        if self.second >= self.main:
            raise ValueError(f"second: {self.second} words, but the main topic has {self.main}; it must have more")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a text."""
        main, second = random.sample(list(WORDS), 2)
        words = [
            *random.sample(WORDS[main], self.main),
            *random.sample(WORDS[second], self.second),
            *random.sample(COMMON, self.common),
        ]
        random.shuffle(words)
        return Task(" ".join(words), main, 1, (main,))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the main topic or the second one."""
        if random.random() < self.mislabelled:
            return "mislabelled", (second_topic(task.prompt, task.answer),)
        return SOUND, task.steps


def second_topic(text: str, main: str) -> str:
    """Return the topic of a text that is not its main one."""
    return next(topic for topic, words in WORDS.items() if topic != main and not set(words).isdisjoint(text.split()))


SETTINGS = TopicsSettings
