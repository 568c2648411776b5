"""Maps with a vehicle's track on a road, and the question where the vehicle is next; the answer is a point, in pixels.

    <image:9f86...> next          17 9

The road is straight or has one bend, and another road crosses it. Three points of the track are drawn, the oldest the
lightest; the vehicle is at the darkest one. It moves the same distance along the road every time, and at the last move
one pixel less, the same or one pixel more. The level is 1 for a straight move and 2 if it passes the bend.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from models.base.images import reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND, Split
from models.task_sets.drawing import Task, TaskSettings
from models.task_sets.scenes import split_of_picture

if TYPE_CHECKING:
    from PIL.Image import Image

Point = tuple[int, int]
"""Place from the left and from the top, in pixels."""
EDGE = 32
"""Width and height of a map, in pixels."""
SHORTEST, LONGEST = 4, 7
"""Distance of a move, in pixels."""
ROAD = (200, 200, 200)
DOTS = ((250, 170, 170), (235, 100, 100), (170, 0, 0))
"""Colours of the points of a track, the oldest first."""


class TracksSettings(TaskSettings):
    """The section `tracks` of params.yaml."""

    maps: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of maps, of all splits together."""
    bent: Annotated[float, Field(ge=0.0, le=1.0)]
    """Share of the maps on which the next move passes the bend."""

    def draw(self, random: Random) -> Task:
        """Draw a map."""
        reference, (x, y), bends = drawn_map(self.seed, random.randrange(self.maps), self.bent)
        return Task(f"{reference} next", f"{x} {y}", 2 if bends else 1, ())

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Return the point, without a flaw."""
        return SOUND, (task.answer,)

    def split_of(self, task: Task) -> Split:
        """Return the split of a prompt, which is that of its map."""
        return split_of_picture(task.prompt)


@lru_cache(maxsize=1 << 17)
def drawn_map(seed: int, number: int, bent: float) -> tuple[str, Point, bool]:
    """Return the reference to a map, the next point, and whether the move passes the bend. Equal arguments: equal maps.

    Args:
        seed: seed of the task set.
        number: number of the map.
        bent: see `TracksSettings`.
    """
    random = Random(f"{seed}/map/{number}")
    bends, starts = random.random() < bent, list[int]()
    while not starts:
        road, corner = road_of(random)
        step = random.randint(SHORTEST, LONGEST)
        moved = step + random.randint(-1, 1)
        starts = [at for at in range(2 * step, len(road) - step - 1) if (at <= corner < at + moved) == bends]
    at = random.choice(starts)
    crossing = random.randint(2, EDGE - 3)
    shown = painted([road[at - 2 * step], road[at - step], road[at]], road, crossing, random.random() < 0.5)
    return reference_to(png_of(shown)), road[at + moved], bends


def road_of(random: Random) -> tuple[list[Point], int]:
    """Draw a road with one bend. Return its points in order, and the index of the bend."""
    begin, turn = random.randint(4, EDGE - 5), random.randint(EDGE // 2 - 4, EDGE // 2 + 4)
    right = begin < EDGE // 2
    across = range(begin + 1, EDGE) if right else range(begin - 1, -1, -1)
    road = [(begin, y) for y in range(turn + 1)] + [(x, turn) for x in across]
    if random.random() < 0.5:
        road = [(y, x) for x, y in road]
    if random.random() < 0.5:
        road = [(EDGE - 1 - x, EDGE - 1 - y) for x, y in road]
    return (road, turn) if random.random() < 0.5 else (road[::-1], len(road) - 1 - turn)


def painted(track: list[Point], road: list[Point], crossing: int, upright: bool) -> Image:
    """Paint a map.

    Args:
        track: points of the track, the oldest first.
        road: points of the road, in order.
        crossing: place of the other road.
        upright: whether the other road goes from top to bottom.
    """
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (EDGE, EDGE), "white")
    draw = ImageDraw.Draw(image)
    line = [(crossing, 0), (crossing, EDGE - 1)] if upright else [(0, crossing), (EDGE - 1, crossing)]
    draw.line(line, fill=ROAD)
    draw.point(road, fill=ROAD)
    for (x, y), colour in zip(track, DOTS, strict=True):
        draw.rectangle([x - 1, y - 1, x + 1, y + 1], fill=colour)
    return image


SETTINGS = TracksSettings
