"""Tiny base models of each family with a vision tower, with random weights, their processors and plain passes."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from torch import Tensor

from models.base.images import content_of, images_in, reference_to, without_images
from models.base.pictures import decoded
from models.text.encoding import Codec
from tests.support.tiny_vision import answer_log_probs, png

NAMES = {
    "start_image_token": "<img>",
    "end_image_token": "</img>",
    "context_image_token": "<IMG_CONTEXT>",
    "video_token": "<video>",
}
"""Tokens that InternVL's processor reads from its tokenizer."""
SPECIALS = (
    "<pad>",
    "<end>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    *NAMES.values(),
    "<|image_pad|>",
    "<|video_pad|>",
    "<|vision_start|>",
    "<|vision_end|>",
)
TEXT: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 32,
    "max_position_embeddings": 1024,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
}
TOWER: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
AXES = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]}


def tokenizer() -> Any:
    """Make a tokenizer of bytes with the special tokens of all families."""
    made = Tokenizer(BPE(unk_token=None))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=300, special_tokens=list(SPECIALS), initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["how many shapes are there"], trainer)
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<end>", extra_special_tokens=dict(NAMES)
    )


def _id(token: str) -> int:
    return SPECIALS.index(token)


def _idefics(kind: str) -> Any:
    return getattr(hf, f"{kind}Config")(
        vision_config=dict(TOWER),
        text_config=hf.LlamaConfig(**TEXT).to_dict(),
        image_token_id=_id("<image>"),
        scale_factor=2,
        tie_word_embeddings=False,
    )


def _llava() -> Any:
    return hf.LlavaConfig(
        vision_config=hf.CLIPVisionConfig(**TOWER, projection_dim=32).to_dict(),
        text_config=hf.LlamaConfig(**TEXT).to_dict(),
        image_token_index=_id("<image>"),
        tie_word_embeddings=False,
    )


def _internvl() -> Any:
    sizes = {"image_size": [32, 32], "patch_size": [8, 8]}
    return hf.InternVLConfig(
        vision_config=hf.InternVLVisionConfig(**{**TOWER, **sizes}).to_dict(),
        text_config=hf.Qwen2Config(**TEXT).to_dict(),
        image_token_id=_id("<IMG_CONTEXT>"),
        tie_word_embeddings=False,
    )


def _qwen(kind: str, tower: Mapping[str, Any]) -> Any:
    vision = {"depth": 2, "num_heads": 2, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
    return getattr(hf, f"{kind}Config")(
        vision_config={**vision, "hidden_size": 32, "intermediate_size": 32, "out_hidden_size": 64, **tower},
        text_config={**TEXT, "rope_parameters": AXES},
        image_token_id=_id("<|image_pad|>"),
        video_token_id=_id("<|video_pad|>"),
        vision_start_token_id=_id("<|vision_start|>"),
        vision_end_token_id=_id("<|vision_end|>"),
        tie_word_embeddings=False,
    )


def _squares(name: str) -> Any:
    edge = {"longest_edge": 32}
    return getattr(hf, name)(size=edge, max_image_size=edge, do_image_splitting=False)


def _grids() -> Any:
    return hf.Qwen2VLImageProcessorPil(size={"shortest_edge": 16 * 16, "longest_edge": 48 * 48}, patch_size=8)


@dataclass(frozen=True)
class Family:
    """A family of base models for the tests."""

    config: Callable[[], Any]
    images: Callable[[], Any]
    """The image processor."""
    processor: str
    """Class of transformers' processor."""
    options: Mapping[str, Any]
    placeholder: str
    """Text of an image in what the processor reads."""


QWEN = "<|vision_start|><|image_pad|><|vision_end|>"
FAMILIES: Mapping[str, Family] = {
    "idefics3": Family(
        lambda: _idefics("Idefics3"),
        lambda: _squares("Idefics3ImageProcessorPil"),
        "Idefics3Processor",
        {"image_seq_len": 4},
        "<image>",
    ),
    "smolvlm": Family(
        lambda: _idefics("SmolVLM"),
        lambda: _squares("SmolVLMImageProcessorPil"),
        "SmolVLMProcessor",
        {"image_seq_len": 4},
        "<image>",
    ),
    "llava": Family(
        _llava,
        lambda: hf.LlavaImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        "LlavaProcessor",
        {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
        "<image>",
    ),
    "internvl": Family(
        _internvl,
        lambda: hf.GotOcr2ImageProcessorPil(size={"height": 32, "width": 32}, max_patches=4),
        "InternVLProcessor",
        {"image_seq_length": 4},
        "<IMG_CONTEXT>",
    ),
    "qwen2_5_vl": Family(
        lambda: _qwen("Qwen2_5_VL", {"window_size": 32, "fullatt_block_indexes": [1]}),
        _grids,
        "Qwen2_5_VLProcessor",
        {},
        QWEN,
    ),
    "qwen3_vl": Family(
        lambda: _qwen("Qwen3VL", {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16}),
        _grids,
        "Qwen3VLProcessor",
        {},
        QWEN,
    ),
}


def random_picture(width: int, height: int, seed: int) -> str:
    """Return a reference to a picture of random pixels."""
    pixels = Random(seed).randbytes(width * height * 3)
    return reference_to(png(Image.frombytes("RGB", (width, height), pixels)))


def save_base(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a base model of a family, with weights that are large enough to matter."""
    torch.manual_seed(seed)
    model: Any = hf.AutoModelForImageTextToText.from_config(FAMILIES[name].config(), dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0.0, 1.5 * weight[0].numel() ** -0.5)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    FAMILIES[name].images().save_pretrained(folder)
    around = json.dumps({"processor_class": FAMILIES[name].processor, **FAMILIES[name].options})
    (folder / "processor_config.json").write_text(around, encoding="utf-8")
    return folder


def processor_of(name: str) -> Any:
    """Return transformers' processor of a family. Its part for videos is left out, which needs torchvision."""
    family = FAMILIES[name]
    whole: Any = getattr(hf, family.processor)
    if name == "smolvlm":  # num2words writes the times of videos
        import_module("transformers.models.smolvlm.processing_smolvlm").__dict__["num2words"] = str
    kind: Any = type(whole.__name__, (whole,), {"check_argument_for_proper_class": lambda self, name, value: None})
    videos = () if name in ("idefics3", "llava") else (None,)
    return kind(family.images(), tokenizer(), *videos, **family.options)


def read_by_processor(name: str, text: str) -> Any:
    """Return what the processor of a family makes of a prompt that begins with references to images."""
    pictures = [decoded(content_of(image), image) for image in images_in(text)]
    written = FAMILIES[name].placeholder * len(pictures) + without_images(text)
    if not pictures:
        return tokenizer()(written, return_tensors="pt")
    return processor_of(name)(images=pictures, text=[written], return_tensors="pt")


def plain_log_probs(name: str, model: Any, rows: Sequence[tuple[str, str | list[int]]], codec: Codec) -> list[Tensor]:
    """Compute log-probs by the model's own forward pass on what its processor makes of each row, one row at a time.

    Args:
        rows: prompts, and completions as texts or token ids.
    """
    with plain_attention(model):
        return [answer_log_probs(model, *plain_inputs(name, model, row, codec)) for row in rows]


@contextmanager
def plain_attention(model: Any) -> Iterator[None]:
    """Let a model read plain batches by transformers' own attention."""
    inner = getattr(model, "get_base_model", lambda: model)()
    before = inner.config._attn_implementation
    inner.set_attn_implementation("sdpa")
    yield
    inner.set_attn_implementation(before)


def plain_inputs(
    name: str, model: Any, row: tuple[str, str | list[int]], codec: Codec
) -> tuple[Tensor, list[int], dict[str, Tensor]]:
    """Return the prompt's ids, [1, tokens], the completion's ids and the tensors of the images of a row."""
    text, answer = row
    read = dict(read_by_processor(name, text))
    prompt = read.pop("input_ids")
    (written,) = codec.completions([answer]) if isinstance(answer, str) else (answer,)
    given = {key: value for key, value in read.items() if key.startswith(("pixel_values", "image_grid"))}
    if "mm_token_type_ids" in read and given:
        types = torch.cat([read["mm_token_type_ids"], torch.zeros(1, len(written), dtype=torch.int64)], 1)
        given["mm_token_type_ids"] = types
    getattr(model, "get_base_model", lambda: model)().base_model.rope_deltas = None
    return prompt, list(written), given
