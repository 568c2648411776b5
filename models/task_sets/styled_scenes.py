"""The questions of `models.task_sets.scenes` about pictures in eight styles of drawing, of which training has some.

    plain       as in `scenes`                 dark        half as bright, on grey
    inverted    on black                       noisy       with noise on every pixel
    outlined    without their filling          striped     every third row of pixels is missing
    faded       half as strong                 tinted      on light blue

The level is the style, from 1. Problems and demonstrations of the training split have the styles in `train`; validation
and gate have all of them, so that accuracy by level shows what transfers from style to style.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import Field

from models.base.images import REFERENCE, content_of, images_in, reference_to
from models.base.pictures import decoded, png_of
from models.datasets.schema import Split
from models.task_sets.drawing import Task
from models.task_sets.scenes import ScenesSettings, split_of_picture

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.float64]
    """A picture, [height, width, 3], from 0 to 255."""

Style = Literal["plain", "inverted", "outlined", "faded", "dark", "noisy", "striped", "tinted"]
STYLES: tuple[Style, ...] = get_args(Style)
NOISE = 60.0
"""Largest change of a value by the noise."""


class StyledScenesSettings(ScenesSettings):
    """The section `styled_scenes` of params.yaml."""

    train: Annotated[tuple[Style, ...], Field(min_length=1)]
    """Styles of the training split."""

    def draw(self, random: Random) -> Task:
        """Draw a question and a style."""
        task = super().draw(random)
        known = split_of_picture(task.prompt) == "train"
        style = random.choice(self.train if known else STYLES)
        (name,) = images_in(task.prompt)
        prompt = REFERENCE.sub(styled(name, style), task.prompt)
        return Task(prompt, task.answer, STYLES.index(style) + 1, (*task.steps, name))

    def split_of(self, task: Task) -> Split:
        """Return the split of a question, which is that of its picture in the plain style."""
        return split_of_picture(f"<image:{task.steps[-1]}>")


@lru_cache(maxsize=1 << 17)
def styled(name: str, style: Style) -> str:
    """Return the reference to an image in another style.

    Args:
        name: name of the image in the plain style, with shapes on white.
        style: style of the result.
    """
    import numpy as np
    from PIL import Image

    pixels = np.asarray(decoded(content_of(name), name), dtype=np.float64)
    shown = in_style(pixels, style, np.random.default_rng(int(name[:16], 16)))
    return reference_to(png_of(Image.fromarray(shown.clip(0, 255).round().astype(np.uint8))))


def in_style(pixels: Pixels, style: Style, random: Any) -> Pixels:
    """Return a picture of shapes on white in another style, [height, width, 3].

    Args:
        pixels: the picture in the plain style.
        style: style of the result.
        random: generator of the noise.
    """
    import numpy as np

    shape = (pixels != 255).any(-1, keepdims=True)
    if style == "inverted":
        return np.where(shape, pixels, 0.0)
    if style == "outlined":
        padded = np.pad(shape[..., 0], 1)
        inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
        return np.where(inside[..., None], 255.0, pixels)
    if style == "faded":
        return (pixels + 255.0) / 2
    if style == "dark":
        return np.where(shape, pixels / 2, 150.0)
    if style == "noisy":
        noise: Pixels = random.uniform(-NOISE, NOISE, pixels.shape)
        return (pixels + noise).clip(0, 255)
    if style == "striped":
        rows = np.arange(len(pixels))[:, None, None] % 3 == 0
        return np.where(rows, 255.0, pixels)
    if style == "tinted":
        return np.where(shape, pixels, np.array([190.0, 210.0, 255.0]))
    return pixels


SETTINGS = StyledScenesSettings
