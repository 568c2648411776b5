"""Short descriptions of scenes, which can be worded in several ways: references instead of a single answer.

    describe red bird on hill        the red bird is on the hill        on the hill there is a red bird

The answer is a JSON list of all references. The flaws of demonstrations: `short`, words are left out; `other`, another
colour or place.
"""

from __future__ import annotations

import json
from random import Random
from typing import ClassVar

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task, TaskSettings

COLOURS = "red blue green white black grey gold pink".split()
THINGS = "bird fish cat dog fox horse boat hat cup rose lamp kite".split()
PLACES = "hill lake road roof wall tree beach bridge table river field tower".split()
SAID = (
    "the {colour} {thing} is {where} the {place}",
    "{where} the {place} there is a {colour} {thing}",
    "a {thing} , which is {colour} , is {where} the {place}",
)
"""Templates of the references."""


class DescriptionsSettings(TaskSettings):
    """The section `descriptions` of params.yaml."""

    states_answer: ClassVar[bool] = False
    short: Share
    """Share of the demonstrations that leave words out."""
    other: Share
    """Share of the others that name another colour or place."""

    def draw(self, random: Random) -> Task:
        """Draw a scene; the level is the number of things in it, one or two."""
        scenes = [_scene(random) for _ in range(random.randint(1, 2))]
        prompt = " and ".join(f"{colour} {thing} {where} {place}" for colour, thing, where, place in scenes)
        texts = [" and ".join(_written(scene, way) for scene in scenes) for way in SAID]
        return Task(f"describe {prompt}", json.dumps(texts), len(scenes), (texts[0],))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a reference, one with words left out, or one with another colour or place."""
        text: str = random.choice(json.loads(task.answer))
        words = text.split()
        if random.random() < self.short:
            left = sorted(random.sample(range(len(words)), len(words) * 2 // 3))
            return "short", (" ".join(words[place] for place in left),)
        if random.random() < self.other:
            kind = random.choice((COLOURS, PLACES))
            place = random.choice([place for place, word in enumerate(words) if word in kind])
            words[place] = random.choice([word for word in kind if word != words[place]])
            return "other", (" ".join(words),)
        return SOUND, (text,)


def _scene(random: Random) -> tuple[str, str, str, str]:
    return random.choice(COLOURS), random.choice(THINGS), random.choice(("on", "near")), random.choice(PLACES)


def _written(scene: tuple[str, str, str, str], way: str) -> str:
    colour, thing, where, place = scene
    return way.format(colour=colour, thing=thing, where=where, place=place)


SETTINGS = DescriptionsSettings
