"""Reading of a picture by a policy: its image processor, and the number of image tokens that follow.

There are two kinds of towers. One reads tiles of a fixed size, and gives as many image tokens for each. The other reads
the picture in its own shape, as a grid of patches, of which `merge` x `merge` become one image token.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.images import content_of
from models.base.pictures import decoded

if TYPE_CHECKING:
    from torch import Tensor


RECENT_BYTES = 128 << 20
"""Memory for the inputs of the pictures that were read last, assumed to be of one size."""


@dataclass(frozen=True)
class PictureInputs:
    """Inputs of a vision tower for one picture."""

    pixels: Tensor
    """Tiles, [tiles, 3, height, width], or patches, [patches, values of a patch]."""
    grid: tuple[int, int] | None
    """Rows and columns of patches; None for tiles."""


@dataclass(frozen=True)
class PictureProcessor:
    """Image processor of a policy. It is saved with tokenizer and config, so that both read a picture alike."""

    name: str
    """Class of transformers, the one that needs Pillow only."""
    settings: str
    """Its settings, a JSON object."""
    around: str
    """Other settings of the model's processor, a JSON object, which transformers and vLLM read."""
    tile_tokens: int
    """Image tokens of a tile; 0: the picture is read as a grid."""
    merge: int
    """Patches along each side that become one image token of a grid."""

    def inputs(self, name: str) -> PictureInputs:
        """Return what the vision tower reads for an image; raises the errors of `count`."""
        return _inputs(self, name)

    def count(self, name: str) -> int:
        """Return the number of image tokens of an image.

        Raises:
            UserError: the image is not known here, cannot be decoded, or is refused by the processor.
        """
        return _count(self, name)


def has_tower(config: Any) -> bool:
    """Return whether a model of this config of transformers has a vision tower."""
    return getattr(config, "vision_config", None) is not None


def processor_of(config: Any) -> PictureProcessor | None:
    """Return the processor that is stored in a config of transformers; None if there is none."""
    stored = getattr(config, _KEY, None)
    return None if stored is None else PictureProcessor(**stored)


def store_processor(config: Any, processor: PictureProcessor) -> None:
    """Store a processor in a config of transformers, which is saved with the model."""
    setattr(config, _KEY, asdict(processor))


_KEY = "picture_processor"
"""Key in config.json."""
_RECENT: dict[tuple[PictureProcessor, str], PictureInputs] = {}


@lru_cache(maxsize=1 << 16)
def _count(processor: PictureProcessor, name: str) -> int:
    inputs = processor.inputs(name)
    if inputs.grid is None:
        return len(inputs.pixels) * processor.tile_tokens
    rows, columns = inputs.grid
    return rows * columns // processor.merge**2


def _inputs(processor: PictureProcessor, name: str) -> PictureInputs:
    known = _RECENT.get((processor, name))
    if known is not None:
        return known
    picture = decoded(content_of(name), f"image {name}")
    try:
        made = _loaded(processor)(images=[picture], return_tensors="pt")
    except ValueError as error:  # such as a picture that is 200 times as wide as high
        raise UserError(f"image {name}: the policy's image processor refuses it ({error})") from None
    pixels = made["pixel_values"]
    if processor.tile_tokens:
        inputs = PictureInputs(pixels.flatten(0, -4), None)
    else:
        _, rows, columns = made["image_grid_thw"][0].tolist()
        inputs = PictureInputs(pixels, (rows, columns))
    _RECENT[processor, name] = inputs
    size = inputs.pixels.nbytes
    while len(_RECENT) > max(1, RECENT_BYTES // size):
        _RECENT.pop(next(iter(_RECENT)))
    return inputs


@lru_cache(maxsize=8)
def _loaded(processor: PictureProcessor) -> Any:
    """Build the image processor of transformers.

    Raises:
        UserError: the name, which comes from files of a model, is not that of an image processor.
    """
    import transformers

    if not processor.name.endswith("ImageProcessorPil") or not hasattr(transformers, processor.name):
        raise UserError(f"picture_processor of config.json: transformers has no image processor {processor.name!r}")
    return getattr(transformers, processor.name).from_dict(json.loads(processor.settings))
