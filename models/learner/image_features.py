"""What a policy reads for the images in a packed row: the outputs of its vision tower, once for each distinct image.

An image is among the token ids as numbers below zero (`models.base.images`). Only this file knows what they mean for a
model: their embeddings are replaced by the features of the image. Packing, attention and the output projection work on
a row with images as on any other.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.images import ImageSpan, content_of, spans_of
from models.base.pictures import decoded


def reads_images(model: nn.Module) -> bool:
    """Return whether a model has a vision tower."""
    return getattr(getattr(model, "config", None), "vision_config", None) is not None


def embeddings_with_images(backbone: Any, ids: Tensor) -> Tensor | None:
    """Compute the vectors that a backbone reads for a row, [tokens, hidden]; None if the row has no images.

    Gradient flows into the word embeddings, the connector and the vision tower.

    Args:
        backbone: a model without its output projection.
        ids: token ids of the row, [tokens]; those of images are below zero.

    Raises:
        UserError: the row has images that are not known here, or with another number of tokens than the tower gives.
    """
    if not reads_images(backbone):
        return None
    spans = spans_of(ids.tolist())
    if not spans:
        return None
    names = list(dict.fromkeys(span.name for span in spans))
    features = image_features(backbone, names)
    wrong = next((span for span in spans if span.length != features.shape[1]), None)
    if wrong is not None:
        raise UserError(
            f"image {wrong.name} has {wrong.length} tokens in the prompt, and the vision tower gives "
            f"{features.shape[1]}: the tokenizer belongs to another model"
        )
    words: Tensor = backbone.get_input_embeddings()(ids.clamp(min=0))
    return words.index_put((_places(spans, ids.device),), _in_order(features, names, spans).to(words.dtype))


def image_features(backbone: Any, names: list[str]) -> Tensor:
    """Compute the features of images by the vision tower and the connector, [images, tokens, hidden].

    Raises:
        UserError: an image is not known here.
    """
    weight = next(backbone.parameters())
    pixels = torch.stack([pixels_of(name, int(backbone.config.vision_config.image_size)) for name in names])
    features: Tensor = backbone.get_image_features(pixels[:, None].to(weight.device, weight.dtype)).pooler_output
    return features


@lru_cache(maxsize=4096)
def pixels_of(name: str, size: int) -> Tensor:
    """Return the pixels of an image as the tower reads them, from -1 to 1, [3, size, size], float32.

    Raises:
        UserError: the image is not known here, or cannot be decoded.
    """
    picture = decoded(content_of(name), f"image {name}", size)
    values = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)
    return values.float() / 127.5 - 1.0


def _places(spans: list[ImageSpan], device: torch.device) -> Tensor:
    """Return the places of all tokens of images in the row, [image tokens]."""
    return torch.cat([torch.arange(span.start, span.start + span.length) for span in spans]).to(device)


def _in_order(features: Tensor, names: list[str], spans: list[ImageSpan]) -> Tensor:
    """Return the features in the order of the spans, [image tokens, hidden]."""
    numbers = {name: number for number, name in enumerate(names)}
    chosen = torch.tensor([numbers[span.name] for span in spans], device=features.device)
    return features.index_select(0, chosen).flatten(0, 1)
