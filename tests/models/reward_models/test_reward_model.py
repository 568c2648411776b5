"""The score of a reward model: it is read at the last token, and does not depend on the rest of the batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.reward_models.model import load_reward_model, reward_model_from_policy, score
from models.reward_models.scoring import score_all

WHOLE = [[5, 6, 7, 1], [5, 6, 9], [3, 3, 8, 4, 2, 1], [5, 6, 8, 1], [4, 5, 6, 7, 8, 9, 10, 11]]
SEQUENCES = Sequences([ids[:2] for ids in WHOLE], [ids[2:] for ids in WHOLE])
"""Three of the sequences share a prompt."""


def without_prompts(*rows: Sequence[int]) -> Sequences:
    return Sequences([[] for _ in rows], rows)


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=24,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=64,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=1,  # the end token is the padding token
        eos_token_id=1,
    )
    folder = tmp_path_factory.mktemp("policy")
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model(policy_folder: Path) -> PreTrainedModel:
    return reward_model_from_policy(policy_folder, seed=3, head_std=1.0)


def alone(model: Any, sequences: Sequence[Sequence[int]] = WHOLE) -> Tensor:
    """Compute the scores by the definition: each sequence alone, without padding, the head on the last hidden state."""
    hidden = [model.model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in sequences]
    return torch.stack([model.score(state)[0] for state in hidden]).detach()


def test_the_score_does_not_depend_on_the_rest_of_the_batch_or_on_the_cut(model: PreTrainedModel) -> None:
    expected = alone(model)
    torch.testing.assert_close(score(model, SEQUENCES).detach(), expected, atol=1e-6, rtol=1e-6)
    turned = score(model, SEQUENCES.take([4, 3, 2, 1, 0])).detach().flip(0)
    torch.testing.assert_close(turned, expected, atol=1e-6, rtol=1e-6)
    for budget in (1, 9, 1000):
        torch.testing.assert_close(score_all(model, SEQUENCES, token_budget=budget), expected, atol=1e-6, rtol=1e-6)


def test_the_end_token_is_scored_though_it_is_the_padding_token(model: PreTrainedModel) -> None:
    with_end, without = score(model, without_prompts([5, 6, 7, 1], [5, 6, 7])).detach()
    assert abs(with_end - without) > 1e-3  # the end token changes the score
    torch.testing.assert_close(torch.stack([with_end, without]), alone(model, [[5, 6, 7, 1], [5, 6, 7]]))
    # The forward of the transformers class skips the end token, because it is also the padding token. `score` must not.
    own = model(input_ids=torch.tensor([[5, 6, 7, 1], [5, 6, 7, 1]])).logits[0, 0].detach()
    torch.testing.assert_close(own, without)


def test_only_the_head_is_new_and_it_comes_from_the_seed(policy_folder: Path) -> None:
    policy = Qwen3ForCausalLM.from_pretrained(policy_folder)
    state = torch.random.get_rng_state()
    made: list[Any] = [reward_model_from_policy(policy_folder, seed=seed) for seed in (3, 3, 4)]
    first, again, other = made
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, policy.model.state_dict()[name]), name
    assert torch.equal(first.score.weight, again.score.weight)
    assert not torch.equal(first.score.weight, other.score.weight)
    assert 0.003 < float(first.score.weight.detach().std()) < 0.03


def test_a_saved_reward_model_scores_the_same_and_is_an_ordinary_classifier(
    model: PreTrainedModel, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "rm")
    assert {file.suffix for file in (tmp_path / "rm").iterdir()} == {".json", ".safetensors"}
    loaded = load_reward_model(tmp_path / "rm")
    assert torch.equal(score_all(loaded, SEQUENCES), score_all(model, SEQUENCES))
    ordinary = AutoModelForSequenceClassification.from_pretrained(tmp_path / "rm")
    assert ordinary.config.num_labels == 1
    logit = ordinary(input_ids=torch.tensor([[4, 5, 6, 7]])).logits[0, 0].detach()
    torch.testing.assert_close(logit, score_all(model, without_prompts([4, 5, 6, 7]))[0], atol=1e-6, rtol=1e-6)


def test_what_is_no_reward_model_is_refused_in_one_line(policy_folder: Path, model: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a reward model"):
        load_reward_model(policy_folder)
    with pytest.raises(UserError, match="no such model folder"):
        reward_model_from_policy(tmp_path / "nowhere", seed=0)
    with pytest.raises(UserError, match="sequence 1 has no completion"):
        score_all(model, Sequences([[], [4]], [[1], []]))
    with pytest.raises(UserError, match="sequence 0 has 65 tokens, the model takes 64"):
        score_all(model, without_prompts([2] * 65))
    with torch.no_grad():
        model.score.weight.fill_(float("nan"))
    with pytest.raises(UserError, match="sequence 0 is not finite"):
        score_all(model, without_prompts([2]))


def test_autocast_changes_the_precision_of_the_body_only(model: PreTrainedModel) -> None:
    low = score_all(model, SEQUENCES, autocast=torch.bfloat16)
    assert low.dtype == torch.float32 and not torch.equal(low, score_all(model, SEQUENCES))
    torch.testing.assert_close(low, alone(model), atol=0.2, rtol=0.05)
    assert not torch.equal(low, low.bfloat16().float())  # the result is not rounded to bfloat16
