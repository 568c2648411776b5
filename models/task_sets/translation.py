"""Phrases to translate from one invented language into another, with a dictionary that can be searched.

    say velm tosk      search: velm | velm: red | search: tosk | tosk: river | #### river red

No model has read either language. The described word follows its description in the first language and precedes it in
the second. The flaws of demonstrations: `guessed`, other words, without a search; `in_order`, the right words in the
order of the original.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.places import names


class TranslationSettings(TaskSettings):
    """The section `translation` of params.yaml."""

    words: Annotated[int, Field(ge=2, le=2000)]
    """Number of words in each language."""
    guessed: Share
    """Share of the demonstrations that guess."""
    in_order: Share
    """Share of the other demonstrations with two words that keep the order of the original."""

    @cached_property
    def dictionary(self) -> dict[str, str]:
        """Meaning of each word."""
        drawn = names(2 * self.words, Random(f"{self.seed}/words"))
        return dict(zip(drawn[: self.words], drawn[self.words :], strict=True))

    def documents(self) -> Iterator[str]:
        """Return the entries of the dictionary, one document per word."""
        return (f"{word}: {meaning}" for word, meaning in self.dictionary.items())

    def draw(self, random: Random) -> Task:
        """Draw one word (level 1) or two (level 2)."""
        level = random.randint(1, 2)
        said = random.sample(list(self.dictionary), level)
        meant = [self.dictionary[word] for word in said]
        looks = [turn for word in said for turn in (f"search: {word}", f"{word}: {self.dictionary[word]}")]
        answer = " ".join(reversed(meant))
        return Task(f"say {' '.join(said)}", answer, level, (*looks, f"#### {answer}"))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a guess, the words in the wrong order, or a sound translation."""
        if random.random() < self.guessed:
            return "guessed", (f"#### {' '.join(random.sample(list(self.dictionary.values()), task.level))}",)
        if task.level == 2 and random.random() < self.in_order:
            return "in_order", (*task.steps[:-1], f"#### {' '.join(reversed(task.answer.split()))}")
        return SOUND, task.steps


SETTINGS = TranslationSettings
