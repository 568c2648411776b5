"""Drawn roads and what a car does there: the light, the lanes and the goal first, then one of eight plans.

    <image:9f86...> plan       light red ahead far left free right none goal left #### stop straight

The picture shows two or three lanes from above, the car at the bottom of one of them, other cars, a light and an arrow
to the goal. The plan follows from them by the first rule that applies:

    stop straight                 the light is red
    slow left, slow right         a car is near ahead, and the lane on that side is free; left before right
    stop straight                 a car is near ahead, and no lane is free
    slow straight                 a car is far ahead
    keep left, keep right         the goal is on that side, and the lane there is free
    speed straight                the light is green
    keep straight                 otherwise

The plans are not balanced: most roads are quiet. The level is the number of the plan in `PLANS`, from 1.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from models.base.images import reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Share, Task, TaskSettings
from models.task_sets.scenes import split_of_picture

if TYPE_CHECKING:
    from PIL.Image import Image

PLANS = (
    "keep straight",
    "speed straight",
    "slow straight",
    "stop straight",
    "keep left",
    "keep right",
    "slow left",
    "slow right",
)
EDGE = 32
"""Width and height of a picture, in pixels."""
WIDE = 8
"""Width of a lane, in pixels."""
LIGHTS = {"red": (220, 40, 40), "green": (40, 180, 60)}
CAR, OWN, ARROW = (90, 60, 20), (50, 70, 220), (235, 160, 20)
NEAR, FAR, BESIDE = 15, 4, 23
"""Distance of a car from the upper edge: near ahead, far ahead, and in another lane, next to the own car."""


@dataclass(frozen=True)
class RoadView:
    """What matters on a road, in words."""

    light: Literal["red", "green", "none"]
    ahead: Literal["near", "far", "none"]
    left: Literal["free", "taken", "none"]
    """State of the lane on the left; none: the road ends there."""
    right: Literal["free", "taken", "none"]
    goal: Literal["left", "right", "straight"]

    @property
    def plan(self) -> str:
        """What the car does."""
        if self.light == "red":
            return "stop straight"
        if self.ahead == "near":
            return "slow left" if self.left == "free" else "slow right" if self.right == "free" else "stop straight"
        if self.ahead == "far":
            return "slow straight"
        if {"left": self.left, "right": self.right}.get(self.goal) == "free":
            return f"keep {self.goal}"
        return "speed straight" if self.light == "green" else "keep straight"

    @property
    def text(self) -> str:
        """The view as a working states it."""
        return f"light {self.light} ahead {self.ahead} left {self.left} right {self.right} goal {self.goal}"


class RoadsSettings(TaskSettings):
    """The section `roads` of params.yaml."""

    roads: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of pictures, of all splits together."""
    quiet: Share
    """Share of the roads without a red light and without a car ahead."""
    misread: Share
    """Share of the demonstrations in which one thing on the road is misread; their plan follows from it."""

    def draw(self, random: Random) -> Task:
        """Draw a road."""
        view, reference = drawn_road(self.seed, random.randrange(self.roads), self.quiet)
        return Task(f"{reference} plan", view.plan, PLANS.index(view.plan) + 1, astuple(view))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return a working and its plan, and the flaw of the working, if it has one."""
        view: RoadView = RoadView(*task.steps)  # type: ignore[arg-type]
        if random.random() >= self.misread:
            return SOUND, (f"{view.text} #### {view.plan}",)
        flaw, view = misread(random, view)
        return flaw, (f"{view.text} #### {view.plan}",)

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its picture."""
        return split_of_picture(task.prompt)


def misread(random: Random, view: RoadView) -> tuple[str, RoadView]:
    """Return a view in which one thing differs, and its name."""
    seen = {"light": ("red", "green", "none"), "ahead": ("near", "far", "none"), "goal": ("left", "right", "straight")}
    thing = random.choice(sorted(seen))
    words = dict(zip(("light", "ahead", "left", "right", "goal"), astuple(view), strict=True))
    words[thing] = random.choice([word for word in seen[thing] if word != words[thing]])
    return thing, RoadView(**words)


def view_of(random: Random, quiet: float) -> RoadView:
    """Draw a view."""
    calm = random.random() < quiet
    lanes = random.randint(2, 3)
    own = random.randrange(lanes)
    sides = [
        "none" if not 0 <= lane < lanes else random.choice(("free", "free", "taken")) for lane in (own - 1, own + 1)
    ]
    light = random.choice(("green", "none", "none") if calm else ("red", "green", "none"))
    ahead = "none" if calm else random.choice(("near", "near", "far"))
    goal = random.choice(("left", "right", "straight", "straight"))
    return RoadView(light, ahead, sides[0], sides[1], goal)  # type: ignore[arg-type]


@lru_cache(maxsize=1 << 17)
def drawn_road(seed: int, number: int, quiet: float) -> tuple[RoadView, str]:
    """Return the view of a road and the reference to its picture; the same arguments give the same road."""
    random = Random(f"{seed}/road/{number}")
    view = view_of(random, quiet)
    return view, reference_to(png_of(painted(view, random)))


def painted(view: RoadView, random: Random) -> Image:
    """Paint a road; `random` moves the cars and changes the grey of the lanes, so that many pictures have one view."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (EDGE, EDGE), "white")
    draw = ImageDraw.Draw(image)
    left, grey = EDGE // 2 - WIDE // 2 + random.randint(-2, 2), random.randint(185, 215)
    lanes = [lane for lane, state in ((-1, view.left), (0, "free"), (1, view.right)) if state != "none"]
    for lane in lanes:
        draw.rectangle([left + lane * WIDE, 0, left + lane * WIDE + WIDE - 2, EDGE - 1], fill=(grey, grey, grey))

    def car(lane: int, top: int, colour: tuple[int, int, int]) -> None:
        x, y = left + lane * WIDE + 1 + random.randint(0, 2), top + random.randint(-2, 2)
        draw.rectangle([x, y, x + 3, y + 6], fill=colour)

    car(0, BESIDE, OWN)
    if view.ahead != "none":
        car(0, NEAR if view.ahead == "near" else FAR, CAR)
    for lane, state in ((-1, view.left), (1, view.right)):
        if state == "taken":
            car(lane, BESIDE, CAR)
    if view.light != "none":
        draw.ellipse([EDGE - 5, 1, EDGE - 1, 5], fill=LIGHTS[view.light])
    tip = {"left": 0, "right": 5, "straight": 2}[view.goal]
    draw.line([(2, 6), (2, 3), (tip, 1)], fill=ARROW, width=2)
    return image


SETTINGS = RoadsSettings
