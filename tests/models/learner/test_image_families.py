"""Base models with a vision tower: packed rows, gradients and token ids are those of the family's own processor."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.images import ImageSpan, spans_of
from models.learner.image_features import positions_with_axes
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences, packed_row
from models.policies.build import LoraSettings, open_policy, with_adapter
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.image_tokens import image_tokens_of
from tests.support.device_here import placed
from tests.support.tiny_models import gradients, keep_float64_in_norms
from tests.support.vision_families import plain_log_probs, random_picture, read_by_processor

WIDE, HIGH, SQUARE = random_picture(60, 30, 0), random_picture(33, 70, 1), random_picture(32, 32, 2)
ROWS = [
    (f"{WIDE}how many shapes", "3"),
    (f"{WIDE}how many shapes", "none"),
    (f"{WIDE}are there many", "no"),
    (f"{HIGH}how many shapes", "3"),
    (f"{SQUARE}{WIDE}how many", "12"),
    ("how many", "4"),
]
"""Questions with answers: shared prompts, one question about two pictures, two pictures in a prompt, and none."""


def opened(base: Path, *, adapted: bool = False) -> tuple[Any, Codec]:
    policy, tokenizer = open_policy(base)
    model: Any = policy.double()
    if adapted:
        model = placed(with_adapter(model, LoraSettings(rank=2, targets=("q_proj", "v_proj", "qkv")), 0).double())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0.0, 0.3)
    keep_float64_in_norms(model)
    return model, Codec(tokenizer)


def sequences(codec: Codec) -> Sequences:
    return Sequences(codec.prompts([text for text, _ in ROWS]), codec.completions([answer for _, answer in ROWS]))


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapters"])
def test_log_probs_and_gradients_are_those_of_the_plain_pass(
    vision_family: str, vision_base: Path, adapted: bool
) -> None:
    model, codec = opened(vision_base, adapted=adapted)
    rows = sequences(codec)
    weights = placed(torch.linspace(-1.0, 1.0, sum(map(len, rows.completions)), dtype=torch.float64))
    packed, _ = completion_log_probs(model, rows)
    (weights * packed).sum().backward()
    when_packed = gradients(model)
    model.zero_grad()
    plain = torch.cat(plain_log_probs(vision_family, model, ROWS, codec))
    (weights * plain).sum().backward()
    when_plain = gradients(model)
    torch.testing.assert_close(packed, plain, atol=1e-9, rtol=0)
    assert when_plain.keys() == when_packed.keys()
    assert any("vis" in name and bool(value.any()) for name, value in when_plain.items()) or adapted
    scale = max(float(value.abs().max()) for value in when_plain.values())
    for name, value in when_plain.items():
        torch.testing.assert_close(when_packed[name], value, atol=1e-6 * scale, rtol=0, msg=name)


def test_token_ids_are_those_of_the_familys_processor(vision_family: str, vision_base: Path) -> None:
    _, codec = opened(vision_base)
    tokens = image_tokens_of(codec.tokenizer)
    assert tokens is not None
    for text, ids in zip((text for text, _ in ROWS), codec.prompts([text for text, _ in ROWS]), strict=True):
        written = [tokens.image if token < 0 else token for token in ids]
        assert written == read_by_processor(vision_family, text)["input_ids"][0].tolist(), text


def test_each_distinct_picture_of_a_row_is_read_once_and_two_pictures_share_nothing(vision_base: Path) -> None:
    model, codec = opened(vision_base)
    rows = sequences(codec)
    names = {span.name for prompt in rows.prompts for span in spans_of(prompt)}
    read: list[int] = []
    inner = model.model.get_image_features

    def counted(pixel_values: Tensor, **options: Any) -> Any:
        read.append(len(pixel_values))
        return inner(pixel_values=pixel_values, **options)

    model.model.get_image_features = counted
    with torch.no_grad():
        completion_log_probs(model, rows)
    assert len(read) == 1 and len(names) == 3
    tokens = image_tokens_of(codec.tokenizer)
    assert tokens is not None and tokens.processor is not None
    assert read[0] == sum(len(tokens.processor.inputs(name).pixels) for name in names)
    shared = packed_row(Sequences(rows.prompts[:2], rows.completions[:2]))
    apart = packed_row(Sequences([rows.prompts[0], rows.prompts[3]], rows.completions[:2]))
    assert len(shared.ids) == len(rows.prompts[0]) + sum(map(len, rows.completions[:2]))
    assert len(apart.ids) == len(rows.prompts[0]) + len(rows.prompts[3]) + sum(map(len, rows.completions[:2]))


def test_a_saved_policy_reads_pictures_as_its_base_does(vision_base: Path, tmp_path: Path) -> None:
    model, codec = opened(vision_base)
    save_model_folder(model.float(), codec.tokenizer, tmp_path / "policy")
    again, its = opened(tmp_path / "policy")
    assert its.prompts([ROWS[4][0]]) == codec.prompts([ROWS[4][0]])
    model.double()
    with torch.no_grad():
        expected, _ = completion_log_probs(model, sequences(codec))
        log_probs, _ = completion_log_probs(again, sequences(its))
    torch.testing.assert_close(log_probs, expected, atol=1e-6, rtol=0)


def test_positions_with_axes_continue_after_the_longer_side_of_an_image_in_the_same_sequence_only() -> None:
    # two words, an image of 2 x 3, a word; then two completions of two words each; then another prompt of two words
    positions = torch.tensor([0, 1, *range(2, 8), 8, 9, 10, 9, 10, 0, 1])
    axes = positions_with_axes(positions, [ImageSpan(2, 6, "a")], [(2, 3)])
    assert axes[0].tolist() == [0, 1, 2, 2, 2, 2, 2, 2, 5, 6, 7, 6, 7, 0, 1]
    assert axes[1].tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 5, 6, 7, 6, 7, 0, 1]
    assert axes[2].tolist() == [0, 1, 2, 3, 4, 2, 3, 4, 5, 6, 7, 6, 7, 0, 1]
