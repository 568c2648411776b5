"""A small vision-language policy made from its size, as Idefics3: a vision tower, a connector and a text model.

The tower reads patches of `patch` pixels; the connector joins `merge` x `merge` of them to one image token. A picture
of 32 pixels with patches of 4 and merge 4 is four image tokens, one for each quarter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from models.base.errors import UserError
from models.base.picture_processor import PictureProcessor, store_processor
from models.text.image_tokens import ImageTokens

if TYPE_CHECKING:
    from torch import nn
    from transformers import Idefics3Config

Number = Annotated[int, Field(ge=1, le=65_536)]
POSITION_SPREAD, WORD_SPREAD = 0.3, 1.0
"""Standard deviations of position and word embeddings under `spread: fan_in`."""


@dataclass(frozen=True, kw_only=True)
class VisionSettings:
    """Vision tower of a new policy. Raises a UserError if its sizes do not fit together."""

    pixels: Number = 32
    """Width and height that pictures are scaled to."""
    patch: Number = 4
    """Width and height of a patch, in pixels."""
    merge: Number = 4
    """Patches along each side that become one image token."""
    hidden: Number = 64
    """Width of the tower."""
    layers: Number = 2
    """Number of layers of the tower."""
    heads: Number = 2
    """Number of attention heads of a layer."""
    feed_forward: Number = 128
    """Width of the feed-forward layer."""

    def __post_init__(self) -> None:
        if self.pixels % (self.patch * self.merge):
            raise UserError(
                f"policy.size.vision: pixels {self.pixels} must be a multiple of patch {self.patch} times merge "
                f"{self.merge}"
            )
        if self.hidden % self.heads:
            raise UserError(f"policy.size.vision: hidden {self.hidden} must be a multiple of heads {self.heads}")

    @property
    def tokens(self) -> int:
        """Image tokens of one picture."""
        return int((self.pixels // self.patch // self.merge) ** 2)

    def processor(self) -> PictureProcessor:
        """Build the image processor, which scales every picture to a square of `pixels`."""
        from transformers import Idefics3ImageProcessorPil

        edge = {"longest_edge": self.pixels}
        made = Idefics3ImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
        settings = json.dumps(json.loads(made.to_json_string()), sort_keys=True)
        around = json.dumps({"image_seq_len": self.tokens, "processor_class": "Idefics3Processor"}, sort_keys=True)
        return PictureProcessor("Idefics3ImageProcessorPil", settings, around, self.tokens, merge=1)


def vision_config(vision: VisionSettings, text: Mapping[str, Any], tokens: ImageTokens) -> Idefics3Config:
    """Build the config of a policy that reads images. The text model is a Llama, the only one that vLLM knows in it.

    Args:
        text: settings of the text model's config.
        tokens: tokens of an image, as the tokenizer has them.
    """
    from transformers import Idefics3Config, LlamaConfig
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig

    shared: dict[str, Any] = {name: text[name] for name in ("tie_word_embeddings", "pad_token_id", "eos_token_id")}
    tower = Idefics3VisionConfig(
        hidden_size=vision.hidden,
        intermediate_size=vision.feed_forward,
        num_hidden_layers=vision.layers,
        num_attention_heads=vision.heads,
        image_size=vision.pixels,
        patch_size=vision.patch,
    )
    config = Idefics3Config(
        vision_config=tower,
        text_config=LlamaConfig(**text),
        image_token_id=tokens.image,
        scale_factor=vision.merge,
        dtype="float32",
        **shared,
    )
    store_processor(config, tokens.processor)
    return config


def spread_by_inputs(model: nn.Module) -> None:
    """Draw every matrix again with a standard deviation of one over the square root of its inputs (`spread: fan_in`).

    Word embeddings get 1 and position embeddings 0.3. transformers draws all at 0.02, at which the attention of a
    narrow model adds too little to start.
    """
    for name, weight in model.named_parameters():
        if weight.ndim > 1:
            spread = weight[0].numel() ** -0.5
            spread = POSITION_SPREAD if "position_embedding" in name else spread
            weight.data.normal_(0.0, WORD_SPREAD if "embed_tokens" in name else spread)
