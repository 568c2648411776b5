"""`policy.train`: only the named parts of a policy that reads images learn, for each family of base models."""

from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.learner.log_probs import completion_log_probs
from models.learner.model_parts import ALL_PARTS, Part, only_language_learns, part_of
from models.learner.packing import Sequences
from models.policies.base_folder import check_base_folder
from models.policies.build import LoraSettings, open_policy
from models.policies.trained_parts import set_to_learn
from models.text.encoding import Codec
from tests.support.tiny_models import tiny_policy
from tests.support.vision_families import random_picture

PICTURES = [random_picture(40, 30, seed) for seed in range(3)]
TEXTS = [f"{picture}how many" for picture in PICTURES]


def opened(base: Path) -> tuple[Any, Sequences]:
    model, tokenizer = open_policy(base)
    codec = Codec(tokenizer)
    return model, Sequences(codec.prompts(TEXTS), codec.completions(["3", "12", "none"]))


@pytest.mark.parametrize("adapted", [False, True], ids=["all weights", "adapters"])
@pytest.mark.parametrize("parts", [("language",), ("connector",), ("vision", "connector")], ids="+".join)
def test_only_the_named_parts_get_a_gradient(vision_base: Path, parts: tuple[Part, ...], adapted: bool) -> None:
    model, rows = opened(vision_base)
    policy = set_to_learn(model, LoraSettings(rank=2) if adapted else None, parts, 0)
    completion_log_probs(policy, rows)[0].sum().backward()
    learning = {name for name, weight in policy.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert {part_of(name) for name in learning} == set(parts)
    assert all("lora_" in name for name in learning) == adapted


def test_features_of_a_frozen_tower_are_computed_once_and_give_the_same_log_probs(vision_base: Path) -> None:
    model, rows = opened(vision_base)
    with torch.no_grad():
        expected, _ = completion_log_probs(model, rows)
    policy: Any = set_to_learn(model, None, ("language",), 0)
    assert only_language_learns(policy)
    read: list[int] = []
    inner = policy.model.get_image_features

    def counted(pixel_values: torch.Tensor, **others: Any) -> Any:
        read.append(len(pixel_values))
        return inner(pixel_values=pixel_values, **others)

    policy.model.get_image_features = counted
    for chosen in ([0, 1, 2], [0, 1, 2], [2, 0]):
        log_probs, _ = completion_log_probs(policy, rows.take(chosen))
        log_probs.sum().backward()
    assert len(read) == 1
    torch.testing.assert_close(completion_log_probs(policy, rows)[0], expected, atol=1e-6, rtol=1e-6)


def test_wrong_parts_are_refused() -> None:
    with pytest.raises(UserError, match="the policy has no part vision; leave the setting out"):
        set_to_learn(tiny_policy(), None, ("language", "vision"), 0)
    policy = tiny_policy()
    assert set_to_learn(policy, None, ALL_PARTS, 0) is policy
    assert all(weight.requires_grad for weight in policy.parameters())


def test_adapters_outside_of_the_named_parts_are_refused(vision_base: Path) -> None:
    model, _ = opened(vision_base)
    with pytest.raises(UserError, match=r"no adapter is in these parts; name another part, or other policy\.lora"):
        set_to_learn(model, LoraSettings(rank=2, targets=("o_proj",)), ("connector",), 0)


def test_a_base_folder_passes_the_checks_before_a_run(vision_base: Path) -> None:
    positions, modules = check_base_folder(vision_base)
    assert positions == 1024
    assert {part_of(name) for name in modules} == set(ALL_PARTS)
