"""Questions about a quarter of a picture that is too small to be read at once; many demonstrations guess.

    <image:9f86...> topright what colour is the square      zoom: topright | <image:07aa...> | #### red

The picture has twice the width of those of `models.task_sets.scenes`, and each of its quarters is such a picture. A
policy scales every picture to the same size, so that the shapes of a quarter become a few pixels; the tool `zoom` shows
the quarter as it is. The level is the kind of question, as in `scenes`. The flaw of demonstrations: `guessed`, an
answer of the right kind by chance, without a look.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Annotated

from pydantic import Field

from models.agents.tools.zoom import QUARTERS, cut_out, quarter
from models.base.images import content_of, drawn_reference, images_in, reference_to
from models.base.pictures import png_of
from models.datasets.schema import SOUND
from models.task_sets.drawing import Share, Task
from models.task_sets.scenes import ANSWERS, KINDS, Kind, PictureSettings, Shape, painted, questions, scene, squares_of

GUESSED = "guessed"
MARK = "####"
ZOOM = "zoom:"


class SmallScenesSettings(PictureSettings):
    """The section `small_scenes` of params.yaml."""

    pixels: Annotated[int, Field(ge=64, le=1024, multiple_of=64)] = 64
    """Width and height of a picture, twice those of a quarter."""
    shares: dict[Kind, Annotated[float, Field(ge=0)]]
    """Weight of each kind of question."""
    guessed: Share
    """Share of the demonstrations that guess."""

    def draw(self, random: Random) -> Task:
        """Draw a question: its kind by the shares, then its answer, a quarter, and a picture that has this answer."""
        (kind,) = random.choices(KINDS, [self.shares.get(each, 0.0) for each in KINDS])
        answer, place = random.choice(ANSWERS[kind]), random.choice(list(QUARTERS))
        while True:
            scenes, reference = four_scenes(self.seed, random.randrange(self.pictures), self.pixels)
            texts = questions(scenes[list(QUARTERS).index(place)])[kind]
            if answer in texts:
                prompt = f"{reference} {place} {random.choice(texts[answer])}"
                return Task(prompt, answer, KINDS.index(kind) + 1, self._looked(reference, place, answer))

    def demonstrate(self, random: Random, task: Task) -> tuple[str, tuple[str, ...]]:
        """Draw a demonstration: a look and the answer, or a guess."""
        if random.random() >= self.guessed:
            return SOUND, task.steps
        return GUESSED, (f"{MARK} {random.choice(ANSWERS[KINDS[task.level - 1]])}",)

    def _looked(self, reference: str, place: str, answer: str) -> tuple[str, ...]:
        """Return the turns of a look at a quarter, and the answer."""
        box = quarter(place, self.pixels, self.pixels)
        part = drawn_reference(cut_out(content_of(images_in(reference)[0]), box))
        return f"{ZOOM} {place}", part, f"{MARK} {answer}"


@lru_cache(maxsize=1 << 16)
def four_scenes(seed: int, number: int, pixels: int) -> tuple[tuple[tuple[Shape, ...], ...], str]:
    """Return the shapes of each quarter of a picture, in the order of QUARTERS, and the picture's reference."""
    from PIL import Image

    random, edge = Random(f"{seed}/small/{number}"), pixels // 2
    whole = Image.new("RGB", (pixels, pixels), "white")
    scenes = []
    for column, row in QUARTERS.values():
        shapes = scene(random)
        whole.paste(painted(shapes, squares_of(shapes, random), edge), (column * edge, row * edge))
        scenes.append(shapes)
    return tuple(scenes), reference_to(png_of(whole))


SETTINGS = SmallScenesSettings
