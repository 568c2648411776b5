"""Packed rows with images: loss and every gradient are those of the model's own pass on what its processor makes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.image_features import inputs_with_images
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences, packed_row
from models.learner.supervised import SupervisedSettings, fit_supervised, rows_by_image, shuffled_batches
from models.policies.build import LoraSettings, with_adapter
from tests.support.device_here import placed
from tests.support.tiny_models import gradients
from tests.support.tiny_vision import plain_log_probs, rows_about_scenes, sequences_of, tiny_vision_policy

ROWS = rows_about_scenes(pictures=3, each=3)
SHARED = [*ROWS, *((text, "red") for text, _ in ROWS[:4])]
"""Questions with further answers, so that prompts are shared."""


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapters"])
def test_log_probs_and_gradients_are_those_of_the_plain_pass(tmp_path: Path, adapted: bool) -> None:
    model, codec = tiny_vision_policy()
    if adapted:
        model = placed(with_adapter(model, LoraSettings(rank=2, targets=("q_proj", "v_proj")), 0).double())
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if "lora_B" in name:
                    weight.normal_(0.0, 0.3)
    weights = placed(torch.linspace(-1.0, 1.0, 2 * len(SHARED), dtype=torch.float64))
    packed, _ = completion_log_probs(model, sequences_of(codec, SHARED))
    (weights * packed).sum().backward()
    when_packed = gradients(model)
    model.zero_grad()
    assert any("vision_model" in name and bool(value.any()) for name, value in when_packed.items())
    plain = torch.cat(plain_log_probs(model, tmp_path / "policy", SHARED, codec))
    (weights * plain).sum().backward()
    torch.testing.assert_close(packed, plain, atol=1e-9, rtol=1e-9)
    when_plain = gradients(model)
    assert when_plain.keys() == when_packed.keys()
    for name, value in when_plain.items():
        torch.testing.assert_close(when_packed[name], value, atol=1e-8, rtol=1e-6, msg=name)


def test_one_question_about_two_pictures_shares_nothing_and_a_prompt_is_read_once() -> None:
    model, codec = tiny_vision_policy()
    first, second = (text.split(" ", 1)[0] for text in (ROWS[0][0], ROWS[3][0]))
    same = sequences_of(codec, [(f"{first} how many shapes", "2"), (f"{second} how many shapes", "2")])
    assert len(packed_row(same).ids) == sum(same.lengths)
    assert len(packed_row(replace(same, nested=True)).ids) == sum(same.lengths)
    log_probs, _ = completion_log_probs(model, same)
    assert abs(float((log_probs[0] - log_probs[2]).detach())) > 1e-4
    both, _ = completion_log_probs(model, replace(same, nested=True))
    torch.testing.assert_close(both, log_probs, atol=1e-9, rtol=1e-9)


def test_the_tower_reads_each_distinct_image_of_a_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, codec = tiny_vision_policy()
    read: list[int] = []
    inner = model.model.vision_model.forward

    def counted(pixel_values: Tensor, **options: Any) -> Any:
        read.append(len(pixel_values))
        return inner(pixel_values=pixel_values, **options)

    monkeypatch.setattr(model.model.vision_model, "forward", counted)
    completion_log_probs(model, sequences_of(codec, SHARED))
    assert read == [3]


def test_a_row_without_images_is_read_as_text_and_a_sampled_image_token_is_a_word() -> None:
    model, codec = tiny_vision_policy()
    image = codec.tokenizer.get_vocab()["<image>"]
    text = Sequences([codec.prompts(["how many shapes"])[0]] * 2, [[7, image, 8], [image, 1]])
    row = packed_row(text)
    assert inputs_with_images(model.model, placed(row.ids), placed(row.positions)) is None
    logits = model(input_ids=placed(torch.tensor([[*text.prompts[0], 7, image, 8]]))).logits[0].log_softmax(-1)
    log_probs, _ = completion_log_probs(model, text)
    at = len(text.prompts[0]) - 1
    expected = torch.stack([logits[at, 7], logits[at + 1, image], logits[at + 2, 8]])
    torch.testing.assert_close(log_probs[:3], expected, atol=1e-9, rtol=1e-9)


def test_images_that_do_not_fit_the_tower_are_refused() -> None:
    model, codec = tiny_vision_policy()
    (prompt,) = codec.prompts([ROWS[0][0]])
    with pytest.raises(UserError, match="has 3 tokens in the prompt, and the vision tower gives 4"):
        completion_log_probs(model, Sequences([[token for token in prompt if token != prompt[5]]], [[7]]))
    with pytest.raises(UserError, match="belongs to no image that this process has read"):
        completion_log_probs(model, Sequences([[3, -77, 3]], [[7]]))


def test_batches_keep_the_rows_of_an_image_together_and_each_row_once_an_epoch() -> None:
    _, codec = tiny_vision_policy()
    prompts = [*sequences_of(codec, ROWS).prompts, (7, 8), (7, 8)]
    groups = rows_by_image(prompts)
    assert groups == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9], [10]]
    batches = shuffled_batches(len(prompts), 11, 0, groups)
    first, second = next(batches), next(batches)
    assert sorted(first) == sorted(second) == list(range(11)) and first != second
    for group in groups:
        places = [first.index(row) for row in group]
        assert places == list(range(places[0], places[0] + len(group)))


def test_a_tiny_policy_learns_its_pictures_by_heart_and_not_without_them() -> None:
    model, codec = tiny_vision_policy(torch.float32)
    rows = [
        (f"{text.split(' ', 1)[0]} how many shapes", answer) for (text, _), answer in zip(ROWS[::3], "123", strict=True)
    ]
    settings = SupervisedSettings(steps=60, batch=3, token_budget=256)
    measured = fit_supervised(model, sequences_of(codec, rows), settings, seed=0)
    assert measured["loss"] < 0.05
    model, codec = tiny_vision_policy(torch.float32)
    blind = [(text.split(" ", 1)[1], answer) for text, answer in rows]
    assert fit_supervised(model, sequences_of(codec, blind), settings, seed=0)["loss"] > 0.4  # ln 3 over two tokens
