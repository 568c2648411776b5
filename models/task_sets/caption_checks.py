"""Critiques of descriptions of pictures: which facts are wrong, and which are missing.

    <image:9f86...> check red square topleft ; blue cross topright
                                                  wrong blue cross topright ; missing blue circle topright
    <image:9f86...> check red square topleft ; blue circle topright                                  right

The descriptions have the flaws of `models.task_sets.captions`, and some have none. A demonstration may be a wrong
critique, as is the worse answer of each preference: it blames a true fact, praises a flawed description, or misses one
fault of two. The level is 1 for a description without a flaw and 2 for one with a flaw.
"""

from __future__ import annotations

from random import Random

from models.datasets.schema import SOUND
from models.task_sets.captions import flawed_caption
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import BETWEEN, PictureSettings, caption_of, items_of, picture

RIGHT = "right"
"""Critique of a description without a flaw."""


class CaptionChecksSettings(PictureSettings):
    """The section `caption_checks` of params.yaml."""

    sound: Share
    """Share of the descriptions without a flaw."""
    flawed: Share
    """Share of the demonstrations that are wrong critiques."""

    def draw(self, random: Random) -> Task:
        """Draw a picture and a description of it."""
        shapes, _, reference = picture(self.seed, random.randrange(self.pictures), self.pixels)
        true = caption_of(items_of(shapes))
        shown = true if random.random() < self.sound else flawed_caption(random, true)[1]
        level = 1 if shown == true else 2
        return Task(f"{reference} check {shown}", critique_of(shown, true), level, (shown, true))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a critique and its flaw, if it has one."""
        if random.random() >= self.flawed:
            return SOUND, (task.answer,)
        flaw, critique = wrong_critique(random, task)
        return flaw, (critique,)

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """Return the flaw of a wrong critique, the right critique and the wrong one."""
        flaw, critique = wrong_critique(random, task)
        return flaw, task.answer, critique


def critique_of(shown: str, true: str) -> str:
    """Return the critique of a description of a picture whose true description is known."""
    stated, expected = shown.split(BETWEEN), true.split(BETWEEN)
    wrong = [f"wrong {item}" for item in stated if item not in expected]
    missing = [f"missing {item}" for item in expected if item not in stated]
    return BETWEEN.join([*wrong, *missing]) or RIGHT


def wrong_critique(random: Random, task: Task) -> tuple[str, str]:
    """Draw a wrong critique, and return it after its flaw: blamed, praised or missed."""
    shown, true = (text.split(BETWEEN) for text in task.steps)
    faults = [] if task.answer == RIGHT else task.answer.split(BETWEEN)
    sound = [item for item in shown if item in true]
    flaws = [*(["blamed"] if sound else []), *(["praised"] if faults else []), *(["missed"] if len(faults) > 1 else [])]
    flaw = random.choice(flaws)
    if flaw == "praised":
        return flaw, RIGHT
    if flaw == "missed":
        missed = random.choice(faults)
        return flaw, BETWEEN.join(fault for fault in faults if fault != missed)
    return flaw, BETWEEN.join([f"wrong {random.choice(sound)}", *faults])


SETTINGS = CaptionChecksSettings
