"""Sentences about health in learned words, and the same sentences in plain words: parallel texts.

    prior to the operation the physician administers the medication      before the surgery the doctor gives the drug

The flaws of demonstrations: `learned`, some learned words are kept; `other`, one plain word is replaced by a word of
another meaning.
"""

from __future__ import annotations

from random import Random
from typing import ClassVar

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

PEOPLE = {"physician": "doctor", "infant": "baby", "individual": "person", "practitioner": "nurse", "juvenile": "child"}
"""Plain word for each learned one, for the people who act and are acted on."""
THINGS = {
    "medication": "drug", "abdomen": "belly", "carcinoma": "cancer", "lesion": "sore", "operation": "surgery",
    "nutrition": "food", "fracture": "break", "specimen": "sample",
}  # fmt: skip
DEEDS = {
    "administers": "gives", "observes": "sees", "palpates": "feels", "terminates": "stops", "commences": "starts",
    "alleviates": "eases",
}  # fmt: skip
TIMES = {"prior to": "before", "subsequent to": "after", "in the course of": "during"}


class PlainWordsSettings(TaskSettings):
    """The section `plain_words` of params.yaml."""

    states_answer: ClassVar[bool] = False
    learned: Share
    """Share of the demonstrations that may keep learned words; they keep each with probability 0.5."""
    other: Share
    """Share of the other demonstrations that have a word of another meaning."""

    def draw(self, random: Random) -> Task:
        """Draw a sentence; level 2 if it states a time."""
        pairs = [*_noun(random, PEOPLE), _pick(random, DEEDS), *_noun(random, THINGS | PEOPLE)]
        level = random.randint(1, 2)
        if level == 2:
            pairs = [_pick(random, TIMES), *_noun(random, THINGS), *pairs]
        return Task(
            " ".join(hard for hard, _ in pairs), " ".join(plain for _, plain in pairs), level,
            (" ".join(plain for _, plain in pairs),),
        )  # fmt: skip

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the plain sentence, one that is plain in part, or one of another meaning."""
        if random.random() < self.learned:
            plain = {hard: easy for hard, easy in ALL.items() if random.random() < 0.5}
            text = in_plain_words(task.prompt, plain)
            return ("learned", (text,)) if text != task.answer else (SOUND, (text,))
        if random.random() < self.other:
            words = task.answer.split()
            place = random.choice([at for at, word in enumerate(words) if word != "the"])
            kind = next(kind for kind in KINDS if words[place] in kind.values())
            words[place] = random.choice([word for word in kind.values() if word != words[place]])
            return "other", (" ".join(words),)
        return SOUND, task.steps


KINDS = (PEOPLE, THINGS, DEEDS, TIMES)
ALL = PEOPLE | THINGS | DEEDS | TIMES


def in_plain_words(text: str, plain: dict[str, str]) -> str:
    """Replace each learned word, or run of words, that is a key of `plain`."""
    padded = f" {text} "
    for hard, easy in plain.items():
        padded = padded.replace(f" {hard} ", f" {easy} ")
    return padded.strip()


def _pick(random: Random, kind: dict[str, str]) -> tuple[str, str]:
    return random.choice(list(kind.items()))


def _noun(random: Random, kind: dict[str, str]) -> list[tuple[str, str]]:
    return [("the", "the"), _pick(random, kind)]


SETTINGS = PlainWordsSettings
