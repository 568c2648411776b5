"""A tiny policy that reads images, its rows about made-up scenes, and its plain forward pass through the processor."""

from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from models.base.images import content_of, images_in, reference_to, without_images
from models.base.pictures import decoded
from models.learner.packing import Sequences
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from models.policies.vision import VisionSettings
from models.task_sets.scenes import ANSWERS, KINDS, painted, questions, scene, squares_of
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.device_here import placed
from tests.support.tiny_models import keep_float64_in_norms

VISION = VisionSettings(hidden=32, feed_forward=32, layers=1)
SIZE = SizeSettings(
    hidden=64,
    layers=2,
    heads=2,
    key_value_heads=1,
    head=32,
    feed_forward=64,
    positions=64,
    tied=False,
    spread="fan_in",
    vision=VISION,
)
WORDS = tuple(sorted({*"what colour shape is the how many shapes where from".split(), *sum(ANSWERS.values(), ())}))
"""All words of questions and answers."""


def png(picture: Any) -> bytes:
    """Return a picture as the bytes of a PNG file."""
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def rows_about_scenes(pictures: int, each: int, seed: int = 0) -> list[tuple[str, str]]:
    """Make questions with their answers, `each` about every picture, [pictures * each]."""
    random = Random(seed)
    rows = []
    for _ in range(pictures):
        shapes = scene(random)
        reference = reference_to(png(painted(shapes, squares_of(shapes, random))))
        every = [
            (f"{reference} {text}", answer)
            for kind in KINDS
            for answer, texts in questions(shapes)[kind].items()
            for text in texts
        ]
        rows += random.sample(every, each)
    return rows


def tiny_vision_policy(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Any, Codec]:
    """Make a policy with random weights, and its codec."""
    tokenizer = train_tokenizer(WORDS, TokenizerSettings(kind="words", vocabulary=64), VISION.processor())
    model: Any = new_policy(SIZE, tokenizer, seed)
    model = placed(model.to(dtype))
    if dtype == torch.float64:
        keep_float64_in_norms(model)
    return model, Codec(tokenizer)


def sequences_of(codec: Codec, rows: list[tuple[str, str]]) -> Sequences:
    """Encode questions and answers."""
    return Sequences(codec.prompts([text for text, _ in rows]), codec.completions([answer for _, answer in rows]))


def plain_log_probs(model: Any, folder: Path, rows: list[tuple[str, str]], codec: Codec) -> list[Tensor]:
    """Compute log-probs by the model's own forward pass on what its processor makes of each row, one row at a time.

    Args:
        model: the policy.
        folder: its model folder, which the processor is read from.
        rows: questions and answers.
        codec: encodes the answers.
    """
    from transformers import AutoProcessor

    save_model_folder(model, codec.tokenizer, folder)
    processor: Any = AutoProcessor.from_pretrained(folder)
    inner = getattr(model, "get_base_model", lambda: model)()
    before = inner.config._attn_implementation
    inner.set_attn_implementation("sdpa")  # eager rounds its softmax to float32
    made = []
    for text, answer in rows:
        pictures = [decoded(content_of(name), name) for name in images_in(text)]
        read = processor(images=pictures, text=["<image>" * len(pictures) + without_images(text)], return_tensors="pt")
        (written,) = codec.completions([answer])
        made.append(answer_log_probs(model, read["input_ids"], written, {"pixel_values": read["pixel_values"]}))
    inner.set_attn_implementation(before)
    return made


def answer_log_probs(model: Any, prompt: Tensor, answer: list[int], images: dict[str, Tensor]) -> Tensor:
    """Compute the log-probs of an answer by the model's own forward pass, [tokens].

    Args:
        model: the policy.
        prompt: token ids from the model's processor, [1, tokens].
        answer: token ids.
        images: other tensors from the processor; numbers with a fraction are cast to the type of the weights.
    """
    ids, dtype = torch.cat([prompt, torch.tensor([answer])], 1), next(model.parameters()).dtype
    given = {key: value.to(dtype) if value.is_floating_point() else value for key, value in images.items()}
    logits = model(input_ids=placed(ids), **{key: placed(value) for key, value in given.items()}).logits[0]
    predicting: Tensor = logits[prompt.shape[1] - 1 : -1].log_softmax(-1)
    return predicting.gather(1, placed(torch.tensor(answer)[:, None]))[:, 0]
