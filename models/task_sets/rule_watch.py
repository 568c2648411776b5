"""Frames of a film and rules: which rules the frames break, each with the shape that breaks it, and then their numbers.

    <image:9f86...> <image:1c0a...> rules 1 red 2 circle 3 blue square
                                            1 red cross topleft ; 3 blue square topright #### 1 ; 3
    <image:77b2...> <image:e10f...> rules 1 green 2 square 3 red circle      #### none

A rule forbids a colour, a form, or a form of a colour; it is broken if a frame shows such a shape. The frames are
pictures of `models.task_sets.scenes`. The reason for a broken rule is the first shape that breaks it, frame by frame
and place by place. The level is the number of broken rules, plus one. Some demonstrations overlook a broken rule or
report one that is kept.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

from pydantic import Field

from models.datasets.schema import SOUND
from models.datasets.splits import split_by_hash
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import COLOURS, PLACES, SHAPES, Item, PictureSettings, items_of, picture

RULES = 3
NONE = "none"
"""Answer if no rule is broken."""


class RuleWatchSettings(PictureSettings):
    """The section `rule_watch` of params.yaml."""

    pictures: Annotated[int, Field(ge=100, le=1_000_000)]
    """Number of pictures that frames are drawn from, of all splits together; each split needs several."""
    frames: Annotated[int, Field(ge=1, le=4)] = 2
    """Frames of a film."""
    flawed: Share
    """Share of the demonstrations with a flaw."""

    def draw(self, random: Random) -> Task:
        """Draw frames of one split, and rules."""
        first = random.randrange(self.pictures)
        frames, references = list[list[Item]](), list[str]()
        for offset in range(self.frames):
            number = first if not offset else self._other(random, references[0])
            shapes, _, reference = picture(self.seed, number, self.pixels)
            frames.append(items_of(shapes))
            references.append(reference)
        rules = drawn_rules(random)
        broken = broken_rules(rules, frames)
        written = " ".join(f"{number} {rule}" for number, rule in enumerate(rules, 1))
        answer = " ; ".join(map(str, broken)) or NONE
        steps = (*rules, *(f"{number} {item}" for number, item in broken.items()))
        return Task(f"{' '.join(references)} rules {written}", answer, len(broken) + 1, steps)

    def _other(self, random: Random, reference: str) -> int:
        """Draw the number of another picture of the same split."""
        split = split_by_hash(reference)
        while True:
            number = random.randrange(self.pictures)
            _, _, other = picture(self.seed, number, self.pixels)
            if other != reference and split_by_hash(other) == split:
                return number

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a working with the broken rules, and its flaw, if it has one."""
        rules, broken = task.steps[:RULES], dict[int, str]()
        for reason in task.steps[RULES:]:
            number, _, item = reason.partition(" ")
            broken[int(number)] = item
        if random.random() >= self.flawed:
            return SOUND, (working(broken),)
        kept = [number for number in range(1, RULES + 1) if number not in broken]
        if broken and (not kept or random.random() < 0.5):
            del broken[random.choice(list(broken))]
            return "overlooked", (working(broken),)
        reported = random.choice(kept)
        words = rules[reported - 1].split()
        colour = words[0] if words[0] in COLOURS else random.choice(list(COLOURS))
        form = words[-1] if words[-1] in SHAPES else random.choice(SHAPES)
        return "reported", (working({**broken, reported: f"{colour} {form} {random.choice(PLACES)}"}),)


def drawn_rules(random: Random) -> list[str]:
    """Draw different rules, [RULES]."""
    rules: list[str] = []
    while len(rules) < RULES:
        colour, form = random.choice(list(COLOURS)), random.choice(SHAPES)
        rule = random.choice((colour, form, f"{colour} {form}"))
        if rule not in rules:
            rules.append(rule)
    return rules


def broken_rules(rules: list[str], frames: list[list[Item]]) -> dict[int, str]:
    """Return the number of each broken rule, from 1, and the first shape that breaks it."""
    broken: dict[int, str] = {}
    for number, rule in enumerate(rules, 1):
        words = set(rule.split())
        for item in (item for frame in frames for item in frame):
            if words <= set(item):
                broken.setdefault(number, " ".join(item))
    return broken


def working(broken: dict[int, str]) -> str:
    """Write broken rules with their reasons, and then their numbers."""
    if not broken:
        return f"#### {NONE}"
    reasons = " ; ".join(f"{number} {item}" for number, item in sorted(broken.items()))
    return f"{reasons} #### {' ; '.join(map(str, sorted(broken)))}"


SETTINGS = RuleWatchSettings
