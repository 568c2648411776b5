"""Screens with widgets that have to be pressed in order; many demonstrations press next to the first one.

    <image:9f86...> press red then circle       21 6 | <image:07aa...> | 8 24

The widgets are the shapes of the task set `scenes`. A prompt names each widget by its colour or form, which no other
widget of the screen has. The policy names places in pixels, and the environment `screen` answers with a picture of the
screen. The level is the number of widgets to press. The flaw of demonstrations is `astray`: the first place is off by
up to `error` pixels in each direction, and the next one is right.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from models.agents.play.screen import Box, Point, Screen, inside, middle
from models.base.images import content_of, images_in
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import LARGEST, PictureSettings, Shape, box_of, picture

ASTRAY = "astray"
THEN = " then "


class ScreensSettings(PictureSettings):
    """The section `screens` of params.yaml."""

    states_answer: ClassVar[bool] = False
    presses: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1, max_length=4)]
    """Weight of the tasks with one press, with two, and so on."""
    astray: Share
    """Share of the demonstrations whose first place is off."""
    error: Annotated[int, Field(ge=1, le=1024)]
    """Largest distance of such a place from the middle of the widget, in each direction, in pixels."""

    @model_validator(mode="after")
    def _leaves_widgets(self) -> Self:
        if self.astray and self.error <= (widest := LARGEST * (self.pixels // 32) // 2 + 1):
            raise ValueError(f"error: {self.error} pixels may not leave a widget; it takes more than {widest}")
        return self

    def draw(self, random: Random) -> Task:
        """Draw a screen and the widgets to press."""
        (count,) = random.choices(range(1, len(self.presses) + 1), self.presses)
        while True:
            shapes, squares, reference = picture(self.seed, random.randrange(self.pictures), self.pixels)
            named = names_of(shapes)
            if len(named) >= count:
                break
        chosen = random.sample(sorted(named), count)
        text = THEN.join(random.choice(named[number]) for number in chosen)
        targets = [box_of(squares[number], self.pixels) for number in chosen]
        prompt, answer = f"{reference} press {text}", json.dumps({"targets": targets})
        return Task(prompt, answer, count, self._turns(_screen(prompt, targets), [middle(box) for box in targets]))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: the middles of the widgets; with a flaw, another place before the first of them."""
        targets: list[Box] = [tuple(box) for box in json.loads(task.answer)["targets"]]
        places, flaw = [middle(box) for box in targets], SOUND
        if random.random() < self.astray:
            flaw = ASTRAY
            places.insert(0, self._astray(random, targets[0]))
        return flaw, self._turns(_screen(task.prompt, targets), places)

    def _astray(self, random: Random, box: Box) -> Point:
        while True:
            x, y = (min(max(at + random.randint(-self.error, self.error), 0), self.pixels - 1) for at in middle(box))
            if not inside((x, y), box):
                return x, y

    def _turns(self, screen: Screen, places: list[Point]) -> tuple[str, ...]:
        """Return the turns of policy and environment that name these places."""
        turns: list[str] = []
        for place in places:
            screen.press(place)
            turns += [f"{place[0]} {place[1]}", screen.reference()]
        return tuple(turns[:-1])


def _screen(prompt: str, targets: Sequence[Box]) -> Screen:
    """Return the screen of a prompt before anything is pressed."""
    (name,) = images_in(prompt)
    return Screen(content_of(name), targets, in_order=True)


def names_of(shapes: tuple[Shape, ...]) -> dict[int, list[str]]:
    """Return the words that only one shape has, by the shape's index; shapes without such a word are left out."""
    words = [word for shape in shapes for word in shape[:2]]
    named = {number: [word for word in shape[:2] if words.count(word) == 1] for number, shape in enumerate(shapes)}
    return {number: own for number, own in named.items() if own}


SETTINGS = ScreensSettings
