"""Families of base models with a vision tower: their tokens of an image, and their image processors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.picture_processor import PictureProcessor, has_tower, processor_of, store_processor
from models.text.image_tokens import AROUND, GLOBAL, IMAGE, ImageTokens, image_tokens_of, set_image_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")
"""Files of a model folder that may hold its image processor; the first one that does is read."""
Read = Callable[[str], dict[str, Any] | None]
"""Reader of a JSON file of a model."""


@dataclass(frozen=True)
class Family:
    """Tokens of an image in the prompts of a family of models."""

    image: str
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    expands: bool = False
    """Whether the family's processor writes `before` and `after` too, and not only the image tokens."""
    settings: tuple[tuple[str, Any], ...] = ()
    """Settings of the image processor that differ from those in its file."""
    grid: bool = False
    """Whether pictures are read in their own shape, as a grid of patches."""


_WHOLE = Family(IMAGE, (AROUND, GLOBAL), (AROUND,), expands=True, settings=(("do_image_splitting", False),))
_QWEN = Family("<|image_pad|>", ("<|vision_start|>",), ("<|vision_end|>",), grid=True)
FAMILIES: Mapping[str, Family] = {
    "idefics3": _WHOLE,  # SmolVLM-256M and -500M are of this family
    "smolvlm": _WHOLE,
    "llava": Family(IMAGE),
    # the processor of transformers passes this value, whatever the file contains
    "internvl": Family("<IMG_CONTEXT>", ("<img>",), ("</img>",), expands=True, settings=(("crop_to_patches", True),)),
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
}
"""Families whose pictures are read, by `model_type`."""
OVERRIDDEN = frozenset(name for family in FAMILIES.values() for name, _ in family.settings)
"""Settings of image processors that may differ from those in the files of a model."""


def adopt_images(tokenizer: PreTrainedTokenizerBase, base: str | Path, revision: str = "main") -> None:
    """Set the tokens of an image for the tokenizer of a base model with a vision tower.

    Nothing is changed for a model without one, for a family that is not supported, and for a tokenizer that has them.

    Args:
        tokenizer: tokenizer of the model.
        base: its folder or hub id.
        revision: commit or branch on the hub.

    Raises:
        UserError: the vocabulary lacks a token of the family, or the model has no image processor.
    """
    if image_tokens_of(tokenizer) is not None:
        return
    read = partial(_json, base, revision=revision)
    config = read("config.json") or {}
    family = FAMILIES.get(config.get("model_type", ""))
    if family is None or not config.get("vision_config"):
        return
    processor = _processor_of(base, config, family, read)
    vocabulary = tokenizer.get_vocab()
    missing = next((name for name in (family.image, *family.before, *family.after) if name not in vocabulary), None)
    if missing is not None:
        raise UserError(f"policy.base: the tokenizer of {base} lacks {missing}, which its images are written with")
    before, after = (tuple(vocabulary[name] for name in names) for names in (family.before, family.after))
    set_image_tokens(
        tokenizer, ImageTokens(0, vocabulary[family.image], before, after, processor, expands=family.expands)
    )


def adopt_processor(config: Any, base: str | Path, revision: str = "main") -> None:
    """Store the image processor of a base model in its config, which is saved with every policy that is made of it.

    Nothing is changed in the cases in which `adopt_images` changes nothing; raises the same errors.

    Args:
        config: config of the model, of transformers.
        base: its folder or hub id.
        revision: commit or branch on the hub.
    """
    family = FAMILIES.get(getattr(config, "model_type", ""))
    if family is None or processor_of(config) is not None or not has_tower(config):
        return
    read = partial(_json, base, revision=revision)
    store_processor(config, _processor_of(base, config.to_dict(), family, read))


def write_processor(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the processor of a policy that reads images into its model folder, for transformers and vLLM.

    Nothing is written for a policy that reads none.
    """
    tokens = image_tokens_of(tokenizer)
    if tokens is None:
        return
    contents = (tokens.processor.settings, tokens.processor.around)
    for name, content in zip(PROCESSOR_FILES, contents, strict=True):
        text = json.dumps(json.loads(content), indent=2, sort_keys=True)
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def _processor_of(base: str | Path, config: Mapping[str, Any], family: Family, read: Read) -> PictureProcessor:
    from transformers.models.auto import image_processing_auto

    alone, whole = (read(name) for name in PROCESSOR_FILES)
    around = {key: value for key, value in (whole or {}).items() if not isinstance(value, dict)}
    settings = alone or (whole or {}).get("image_processor")
    if settings is None:
        raise UserError(f"policy.base: {base} has a vision tower but no image processor ({PROCESSOR_FILES[0]})")
    settings = {**settings, **dict(family.settings)}
    settings.pop("auto_map", None)
    classes: Any = image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES  # type: ignore[attr-defined]
    name: str = classes[config["model_type"]]["pil"]
    merge = int(config["vision_config"].get("spatial_merge_size") or 1)
    tokens = 0 if family.grid else _tile_tokens(config, settings)
    return PictureProcessor(
        name, json.dumps(settings, sort_keys=True), json.dumps(around, sort_keys=True), tokens, merge
    )


def _tile_tokens(config: Mapping[str, Any], settings: Mapping[str, Any]) -> int:
    """Return the number of image tokens of a tile."""
    vision = config["vision_config"]
    patch, size = _edge(vision.get("patch_size", 14)), _edge(vision.get("image_size", 336))
    if config["model_type"] in ("idefics3", "smolvlm"):
        size = _edge(settings.get("max_image_size", {}).get("longest_edge", size))
        return (size // patch) ** 2 // int(config.get("scale_factor", 2)) ** 2
    if config["model_type"] == "internvl":
        return int((size // patch) ** 2 * config.get("downsample_ratio", 0.5) ** 2)
    size = _edge(settings.get("crop_size", {}).get("height", size))
    first = 1 if "clip" in vision.get("model_type", "") and "siglip" not in vision.get("model_type", "") else 0
    dropped = 1 if config.get("vision_feature_select_strategy", "default") == "default" else 0
    return (size // patch) ** 2 + first - dropped


def _edge(value: Any) -> int:
    """Return a size that is given as a number, or as a pair of equal numbers."""
    return int(value[0] if isinstance(value, list | tuple) else value)


def _json(base: str | Path, name: str, *, revision: str) -> dict[str, Any] | None:
    """Return a JSON object of a model folder or a hub model; None if the file does not exist."""
    from transformers.utils.hub import cached_file

    try:
        file = cached_file(
            str(base),
            name,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
            _raise_exceptions_for_gated_repo=False,
        )
    except OSError:
        return None
    if file is None:
        return None
    try:
        value = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"policy.base: {base}/{name}: not valid JSON ({error})") from None
    return value if isinstance(value, dict) else None
