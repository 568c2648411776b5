"""Prompts with images for vLLM, which writes the tokens of an image itself and reads its pixels.

Among our token ids an image is numbers below zero, with the tokens that its model expects around them. vLLM takes one
token for all of these, and the picture.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.base.images import content_of, spans_of
from models.base.pictures import decoded
from models.text.base_images import OVERRIDDEN
from models.text.image_tokens import ImageTokens, image_tokens_of
from models.text.tokenizer import load_tokenizer

MOST_IMAGES = 8
"""Largest number of images of a prompt."""


@dataclass(frozen=True)
class ImagePrompts:
    """The conversion of prompts for one policy."""

    tokens: ImageTokens
    """Tokens of an image."""

    @property
    def processor_options(self) -> dict[str, Any]:
        """Options of the image processor that vLLM must not read from the model's folder."""
        settings = json.loads(self.tokens.processor.settings)
        return {name: settings[name] for name in OVERRIDDEN if name in settings}

    def prompt(self, ids: Sequence[int]) -> dict[str, Any]:
        """Return a prompt as vLLM takes it."""
        short: list[int] = []
        pictures: list[Any] = []
        names: list[str] = []
        done = 0
        before, after = (len(self.tokens.before), len(self.tokens.after)) if self.tokens.expands else (0, 0)
        for span in spans_of(ids):
            short += [*ids[done : span.start - before], self.tokens.image]
            done = span.start + span.length + after
            pictures.append(decoded(content_of(span.name), f"image {span.name}"))
            names.append(span.name)
        prompt: dict[str, Any] = {"prompt_token_ids": [*short, *ids[done:]]}
        if pictures:
            prompt |= {"multi_modal_data": {"image": pictures}, "multi_modal_uuids": {"image": names}}
        return prompt


def image_prompts_of(folder: Path) -> ImagePrompts | None:
    """Return the conversion for the policy in a model folder; None if it reads no images."""
    vision = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("vision_config")
    tokens = None if vision is None else image_tokens_of(load_tokenizer(folder))
    return None if tokens is None else ImagePrompts(tokens)
