"""Reward models that read images: scores and gradients are those of the family's own processor and plain pass."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.policies.build import open_policy
from models.policies.folder import save_model_folder
from models.reward_models.model import load_reward_model, reward_model_from_policy, score
from models.reward_models.scoring import score_all
from models.text.encoding import Codec
from tests.support.device_here import placed
from tests.support.tiny_models import gradients, keep_float64_in_norms
from tests.support.vision_families import plain_attention, plain_inputs, random_picture

WIDE, HIGH = random_picture(60, 30, 3), random_picture(33, 70, 4)
ROWS = [
    (f"{WIDE}how many shapes", "3"),
    (f"{WIDE}how many shapes", "none"),
    (f"{WIDE}how many shapes", "none at all"),
    (f"{HIGH}how many shapes", "3"),
    (f"{HIGH}{WIDE}how many", "12"),
    ("how many", "4"),
]
"""Completions of one prompt with a common beginning, one question about two pictures, two pictures, and none."""


@pytest.fixture(scope="module")
def policy(vision_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a policy, as the warm start writes it."""
    folder = tmp_path_factory.mktemp("policy") / "policy"
    model, tokenizer = open_policy(vision_base)
    save_model_folder(model, tokenizer, folder)
    return folder


def codec_of(vision_base: Path) -> Codec:
    return Codec(open_policy(vision_base)[1])


def sequences(codec: Codec) -> Sequences:
    return Sequences(codec.prompts([text for text, _ in ROWS]), codec.completions([answer for _, answer in ROWS]))


def plain_scores(name: str, model: Any, codec: Codec) -> Tensor:
    """Compute scores by the definition, one row at a time: the head on the last state of the model's own pass."""
    scores = []
    for row in ROWS:
        prompt, answer, images = plain_inputs(name, model, row, codec)
        ids = torch.cat([prompt, torch.tensor([answer])], 1)
        dtype = model.score.weight.dtype
        given = {key: value.to(dtype) if value.is_floating_point() else value for key, value in images.items()}
        given = {key: placed(value) for key, value in given.items()}
        state = model.base_model(input_ids=placed(ids), use_cache=False, **given).last_hidden_state[0, -1]
        scores.append(model.score(state)[0])
    return torch.stack(scores)


def test_scores_and_gradients_are_those_of_the_plain_pass(vision_family: str, vision_base: Path, policy: Path) -> None:
    codec = codec_of(vision_base)
    model: Any = placed(reward_model_from_policy(policy, seed=0, head_std=1.0).double())
    keep_float64_in_norms(model)
    weights = placed(torch.linspace(-1.0, 1.0, len(ROWS), dtype=torch.float64))
    packed = score(model, sequences(codec))
    (weights * packed).sum().backward()
    when_packed = gradients(model)
    model.zero_grad()
    with plain_attention(model):
        plain = plain_scores(vision_family, model, codec)
    (weights * plain).sum().backward()
    when_plain = gradients(model)
    torch.testing.assert_close(packed, plain, atol=1e-9, rtol=0)
    assert abs(float((packed[0] - packed[3]).detach())) > 1e-3  # the picture matters
    assert when_plain.keys() == when_packed.keys()
    assert any("vis" in name and bool(value.any()) for name, value in when_plain.items())
    scale = max(float(value.abs().max()) for value in when_plain.values())
    for name, value in when_plain.items():
        torch.testing.assert_close(when_packed[name], value, atol=1e-6 * scale, rtol=0, msg=name)


def test_scoring_of_many_is_that_of_each(vision_base: Path, policy: Path) -> None:
    codec = codec_of(vision_base)
    model: Any = placed(reward_model_from_policy(policy, seed=0, head_std=1.0))
    rows = sequences(codec)
    together = score(model, rows).detach().cpu()
    for budget in (1, 100, 10_000):
        torch.testing.assert_close(score_all(model, rows, token_budget=budget), together, atol=1e-4, rtol=1e-4)


def test_a_written_reward_model_is_read_again_to_the_same_bits(
    vision_family: str, vision_base: Path, policy: Path, tmp_path: Path
) -> None:
    tokenizer, codec = open_policy(vision_base)[1], codec_of(vision_base)
    model: Any = reward_model_from_policy(policy, seed=0, head_std=1.0)
    save_model_folder(model, tokenizer, tmp_path / "reward_model")
    again: Any = load_reward_model(tmp_path / "reward_model")
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert torch.equal(score_all(placed(model), sequences(codec)), score_all(placed(again), sequences(codec)))
    with pytest.raises(UserError, match=r"holds \w+ForConditionalGeneration, not a reward model"):
        load_reward_model(policy)


def test_only_the_head_is_new(vision_base: Path, policy: Path) -> None:
    made: list[Any] = [reward_model_from_policy(policy, seed=seed) for seed in (1, 1, 2)]
    own: Any = open_policy(vision_base)[0]
    for kept, weight in zip(own.base_model.parameters(), made[0].base_model.parameters(), strict=True):
        assert torch.equal(kept.detach().cpu(), weight)
    first, same, other = (model.score.weight for model in made)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
