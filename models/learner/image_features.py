"""Inputs of a policy for the images in a packed row: the outputs of its vision tower, once for each distinct image.

An image is among the token ids as numbers below zero (`models.base.images`). Only this file knows what they mean for a
model: their embeddings are replaced by the features of the image. Packing, attention and the output projection work on
a row with images as on any other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.images import ImageSpan, spans_of
from models.base.picture_processor import has_tower, processor_of
from models.learner.model_parts import only_language_learns

KEPT_IMAGES = 1024
"""Largest number of images whose features are kept while the vision tower is frozen."""


@dataclass(frozen=True)
class RowInputs:
    """Inputs of a decoder for a row with images."""

    embeddings: Tensor
    """Vectors of all tokens, [tokens, hidden]."""
    positions: Tensor
    """Positions, [tokens], or [3, tokens] for a model with axes for time, height and width."""
    places: Tensor
    """Indices of the tokens of images, [image tokens]."""
    deep: Sequence[Tensor]
    """Features that are added after each of the first layers, [layers] of [image tokens, hidden]; often empty."""

    def reader(self, backbone: Any) -> tuple[Any, dict[str, Any]]:
        """Return the module that reads the row, and its arguments besides embeddings and positions."""
        if not self.deep:
            return backbone, {}
        mask = torch.zeros(1, len(self.embeddings), dtype=torch.bool, device=self.embeddings.device)
        mask[0, self.places] = True
        return backbone.language_model, {"visual_pos_masks": mask, "deepstack_visual_embeds": list(self.deep)}


@dataclass(frozen=True)
class ImageFeatures:
    """Outputs of a vision tower and its connector."""

    values: Sequence[Tensor]
    """Features of each image, [images] of [image tokens, hidden]."""
    deep: Sequence[Sequence[Tensor]] = ()
    """Features for each of the first layers of the decoder, [layers][images] of [image tokens, hidden]."""
    grids: Sequence[tuple[int, int]] = ()
    """Rows and columns of image tokens of each image; empty for a tower that reads tiles."""


_FROZEN: WeakKeyDictionary[Any, OrderedDict[tuple[str, torch.dtype | None], ImageFeatures]] = WeakKeyDictionary()
"""Features of images by backbone, and by image and dtype of autocast; the most recent ones are last."""


def reads_images(model: nn.Module) -> bool:
    """Return whether a model has a vision tower."""
    return has_tower(getattr(model, "config", None))


def inputs_with_images(backbone: Any, ids: Tensor, positions: Tensor) -> RowInputs | None:
    """Compute what a backbone reads for a row; None if the row has no images.

    Gradient flows into the word embeddings, the connector and the vision tower.

    Args:
        backbone: a model without its output projection.
        ids: token ids of the row, [tokens]; those of images are below zero.
        positions: positions of the tokens in their sequences, [tokens].

    Raises:
        UserError: the row has images that are not known here, or with another number of tokens than the tower gives.
    """
    if not reads_images(backbone):
        return None
    spans = spans_of(ids.tolist())
    if not spans:
        return None
    names = list(dict.fromkeys(span.name for span in spans))
    features = features_of(backbone, names)
    numbers = [names.index(span.name) for span in spans]
    for span, number in zip(spans, numbers, strict=True):
        if span.length != len(features.values[number]):
            raise UserError(
                f"image {span.name} has {span.length} tokens in the prompt, and the vision tower gives "
                f"{len(features.values[number])}: the tokenizer belongs to another model"
            )
    words: Tensor = backbone.get_input_embeddings()(ids.clamp(min=0))
    places = torch.cat([torch.arange(span.start, span.start + span.length) for span in spans]).to(ids.device)
    in_order = torch.cat([features.values[number] for number in numbers])
    if features.grids:
        positions = positions_with_axes(positions, spans, [features.grids[number] for number in numbers])
    return RowInputs(
        words.index_put((places,), in_order.to(words.dtype)),
        positions,
        places,
        [torch.cat([layer[number] for number in numbers]).to(words.dtype) for layer in features.deep],
    )


def positions_with_axes(positions: Tensor, spans: Sequence[ImageSpan], grids: Sequence[tuple[int, int]]) -> Tensor:
    """Compute positions with axes for time, height and width, [3, tokens] (Qwen2-VL, arXiv 2409.12191).

    The tokens of an image share one position in time; their rows and columns count from it. The text after an image
    continues after its longer side. It ends at the first token whose position is not after the image.

    Args:
        positions: positions in the sequences, [tokens].
        spans: the images of the row, in order.
        grids: rows and columns of image tokens of each, [images].
    """
    axes = positions.expand(3, -1).clone()
    for span, (rows, columns) in zip(spans, grids, strict=True):
        end = span.start + span.length
        before = positions[end:] < positions[span.start] + span.length
        stop = end + (int(before.nonzero()[0]) if bool(before.any()) else len(before))
        first = axes[0, span.start].clone()
        places = torch.arange(span.length, device=positions.device)
        axes[:, span.start : end] = first
        axes[1, span.start : end] += places // columns
        axes[2, span.start : end] += places % columns
        axes[:, end:stop] -= span.length - max(rows, columns)
    return axes


def positions_skipped(model: Any, prompt: Sequence[int]) -> int:
    """Return how many positions less than tokens a prompt takes: images leave some out in a model with axes.

    Args:
        model: a language model, or its backbone.
        prompt: token ids, [tokens].

    Raises:
        UserError: an image is not known here.
    """
    processor = processor_of(model.config)
    if processor is None or min(prompt) >= 0:
        return 0
    grids = [(span.length, processor.inputs(span.name).grid) for span in spans_of(prompt)]
    return sum(length - max(grid) // processor.merge for length, grid in grids if grid is not None)


def features_of(backbone: Any, names: Sequence[str]) -> ImageFeatures:
    """Return the features of images; they are computed once for each image while only the language model learns.

    Args:
        backbone, names: see `image_features`.

    Raises:
        UserError: an image is not known here.
    """
    if not only_language_learns(backbone):  # the copy of an engine does not learn, but its weights are replaced
        return image_features(backbone, names)
    place = next(backbone.parameters()).device.type
    rounded = torch.get_autocast_dtype(place) if torch.is_autocast_enabled(place) else None
    kept = _FROZEN.setdefault(backbone, OrderedDict())
    if missing := [name for name in names if (name, rounded) not in kept]:
        with torch.no_grad():
            computed = image_features(backbone, missing)
        for number, name in enumerate(missing):
            deep = [[layer[number]] for layer in computed.deep]
            kept[name, rounded] = ImageFeatures([computed.values[number]], deep, computed.grids[number : number + 1])
    chosen = [kept[name, rounded] for name in names]
    for name in names:
        kept.move_to_end((name, rounded))
    while len(kept) > max(KEPT_IMAGES, len(names)):
        kept.popitem(last=False)
    return ImageFeatures(
        [value for features in chosen for value in features.values],
        [[features.deep[layer][0] for features in chosen] for layer in range(len(chosen[0].deep))],
        [grid for features in chosen for grid in features.grids],
    )


def image_features(backbone: Any, names: Sequence[str]) -> ImageFeatures:
    """Compute the features of images by the vision tower and the connector.

    Args:
        backbone: a model without its output projection.
        names: names of distinct images, [images].

    Raises:
        UserError: an image is not known here.
    """
    weight = next(backbone.parameters())
    processor = processor_of(backbone.config)
    assert processor is not None, "the tokenizer has the tokens of images, so the config has their processor"
    inputs = [processor.inputs(name) for name in names]
    pixels = torch.cat([each.pixels for each in inputs]).to(weight.device, weight.dtype)
    if processor.tile_tokens:
        tiles = torch.cat(list(_features(backbone, pixels))).split(
            [len(each.pixels) * processor.tile_tokens for each in inputs]
        )
        return ImageFeatures(tiles)
    grids = [each.grid for each in inputs if each.grid is not None]
    shapes = torch.tensor([(1, *grid) for grid in grids], device=weight.device)
    output = backbone.get_image_features(pixel_values=pixels, image_grid_thw=shapes)
    merge = processor.merge
    return ImageFeatures(
        output.pooler_output,
        getattr(output, "deepstack_features", None) or (),
        [(rows // merge, columns // merge) for rows, columns in grids],
    )


def _features(backbone: Any, tiles: Tensor) -> Any:
    """Compute the features of tiles, [tiles] of [image tokens, hidden].

    Args:
        tiles: pixels, [tiles, 3, height, width].
    """
    if backbone.config.model_type in ("idefics3", "smolvlm"):
        tiles = tiles[:, None]
    return backbone.get_image_features(pixel_values=tiles).pooler_output
