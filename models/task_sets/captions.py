"""Descriptions of pictures: colour, form and place of each shape that a prompt is about.

    <image:9f86...> describe shapes         red square topleft ; blue circle bottomright
    <image:9f86...> describe circle         blue circle bottomright

The pictures are those of `models.task_sets.scenes`, and belong to the same splits there. The level is the number of
described shapes. Some demonstrations, and the worse answer of each preference, have one of these flaws:

    attribute   a shape has another colour or form
    relation    a shape is in another place
    existence   a shape is missing, or one is described that is not in the picture
"""

from __future__ import annotations

from random import Random
from typing import Literal, get_args

from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import (
    COLOURS,
    PLACES,
    SHAPES,
    PictureSettings,
    caption_of,
    items_in,
    items_of,
    picture,
)

Flaw = Literal["attribute", "relation", "existence"]
FLAWS: tuple[Flaw, ...] = get_args(Flaw)


class CaptionsSettings(PictureSettings):
    """The section `captions` of params.yaml."""

    every: Share
    """Share of the prompts that ask for all shapes; the others ask for those of a colour or form."""
    flawed: Share
    """Share of the demonstrations with a flaw."""

    def draw(self, random: Random) -> Task:
        """Draw a picture, and which of its shapes to describe."""
        shapes, _, reference = picture(self.seed, random.randrange(self.pictures), self.pixels)
        items = items_of(shapes)
        word = "shapes"
        if random.random() >= self.every:
            word = random.choice(sorted({word for colour, form, _ in items for word in (colour, form)}))
            items = [item for item in items if word in item]
        return Task(f"{reference} describe {word}", caption_of(items), len(items), ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a description and its flaw, if it has one."""
        if random.random() >= self.flawed:
            return SOUND, (task.answer,)
        flaw, caption = flawed_caption(random, task.answer)
        return flaw, (caption,)

    def prefer(self, random: Random, task: Task) -> tuple[str, str, str]:
        """Return a flaw, the description without it and one with it."""
        flaw, caption = flawed_caption(random, task.answer)
        return flaw, task.answer, caption


def flawed_caption(random: Random, caption: str) -> tuple[Flaw, str]:
    """Draw a flaw, and return it with the description that has it, which still names the shapes from place to place."""
    items = items_in(caption)
    flaw, at = random.choice(FLAWS), random.randrange(len(items))
    colour, form, place = items[at]
    free = [other for other in PLACES if other not in {item[2] for item in items}]
    if flaw == "existence":
        if not free or (len(items) > 1 and random.random() < 0.5):
            del items[at]
        else:
            items.append((random.choice(list(COLOURS)), random.choice(SHAPES), random.choice(free)))
    elif flaw == "attribute" and random.random() < 0.5:
        items[at] = (random.choice([other for other in COLOURS if other != colour]), form, place)
    elif flaw == "attribute":
        items[at] = (colour, random.choice([other for other in SHAPES if other != form]), place)
    elif free:
        items[at] = (colour, form, random.choice(free))
    else:  # every place is taken: two shapes change places
        other = random.choice([number for number in range(len(items)) if number != at])
        items[at] = (colour, form, items[other][2])
        items[other] = (items[other][0], items[other][1], place)
    return flaw, caption_of(sorted(items, key=lambda item: PLACES.index(item[2])))


SETTINGS = CaptionsSettings
