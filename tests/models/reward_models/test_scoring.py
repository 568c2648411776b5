"""Scores of many completions: each equals the score of its sequence alone, and common prefixes are computed once."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Gemma2Config, PreTrainedModel, Qwen3Config
from transformers.models.gemma2 import Gemma2ForSequenceClassification
from transformers.models.qwen3 import Qwen3ForSequenceClassification

from models.base.errors import UserError
from models.learner.packing import Sequences
from models.reward_models import scoring
from models.reward_models.scoring import reads_trees, score_all

SHAPE: dict[str, Any] = {
    "vocab_size": 24,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_labels": 1,
    "pad_token_id": 0,
}
EXACT: dict[str, Any] = {"rtol": 1e-5, "atol": 2e-6}


def qwen3() -> PreTrainedModel:
    return Qwen3ForSequenceClassification(Qwen3Config(**SHAPE))


def gemma2() -> PreTrainedModel:
    """Make a model with a window of four tokens in every other layer, and with capped attention scores."""
    return Gemma2ForSequenceClassification(Gemma2Config(**SHAPE, sliding_window=4, attn_logit_softcapping=1.0))


def made(kind: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = kind().eval()
    with torch.no_grad():
        for values in model.parameters():
            values.normal_(0, 0.2)
    return model


def samples(seed: int, prompts: int = 5, group: int = 8) -> Sequences:
    """Make shuffled sequences: for each prompt, completions that share prefixes and are often equal."""
    chance = random.Random(seed)
    asked = [[chance.randrange(1, 24) for _ in range(chance.randint(1, 12))] for _ in range(prompts)]
    pairs = []
    for prompt in asked:
        answer = [chance.randrange(1, 24) for _ in range(12)]
        for _ in range(group):
            kept = chance.choice([3, 8, 12])
            pairs.append((prompt, answer[:kept] + [chance.randrange(1, 24)] * (12 - kept)))
    chance.shuffle(pairs)
    return Sequences([prompt for prompt, _ in pairs], [answer for _, answer in pairs])


def alone(model: PreTrainedModel, sequences: Sequences) -> Tensor:
    """Compute the scores by the definition, in float64: each sequence alone, with the model's own eager forward."""
    plain: Any = copy.deepcopy(model).double()
    plain.set_attn_implementation("eager")
    with torch.no_grad():
        rows = [torch.tensor([[*p, *c]]) for p, c in zip(sequences.prompts, sequences.completions, strict=True)]
        states = [plain.model(input_ids=row, use_cache=False).last_hidden_state[0, -1] for row in rows]
        return torch.stack([plain.score(state)[0] for state in states])


@pytest.mark.parametrize("kind", [qwen3, gemma2])
def test_scores_are_those_of_each_sequence_alone_in_the_order_given(kind: Callable[[], PreTrainedModel]) -> None:
    model, sequences = made(kind), samples(1)
    expected = alone(model, sequences).float()
    torch.testing.assert_close(score_all(model, sequences), expected, **EXACT)
    assert expected.std() > 0.05 and reads_trees(model)
    turned = list(reversed(range(len(sequences))))
    torch.testing.assert_close(score_all(model, sequences.take(turned)), expected[turned], **EXACT)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("largest", [0, 25, 512])
@pytest.mark.parametrize("budget", [1, 40, 16384])
def test_a_score_does_not_depend_on_the_route_the_cut_or_the_company(
    largest: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "LARGEST_TREE", largest)
    model, sequences = made(qwen3), samples(2)
    expected = alone(model, sequences).float()
    torch.testing.assert_close(score_all(model, sequences, token_budget=budget), expected, **EXACT)
    for some in ([3], list(range(0, len(sequences), 3))):
        torch.testing.assert_close(score_all(model, sequences.take(some)), expected[some], **EXACT)


@pytest.mark.parametrize("largest", [0, 512])
def test_equal_sequences_have_one_score_to_the_last_bit(largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "LARGEST_TREE", largest)
    sequences = samples(3)
    twice = sequences.take([*range(len(sequences)), *reversed(range(len(sequences)))])
    scores = score_all(made(qwen3), twice)
    assert torch.equal(scores[: len(sequences)], scores[len(sequences) :].flip(0))
    whole = [(*p, *c) for p, c in zip(twice.prompts, twice.completions, strict=True)]
    assert len(set(scores.tolist())) <= len(set(whole)) < len(sequences)


def test_a_common_beginning_is_read_once_and_the_last_layer_ends_where_scores_are_read() -> None:
    model, sequences = made(qwen3), samples(4)
    score_all(model, sequences)  # so that the model has already been tested once
    read, ended = [], []
    model.model.embed_tokens.register_forward_hook(lambda part, given, out: read.append(given[0].numel()))
    model.model.layers[-1].mlp.act_fn.register_forward_hook(lambda part, given, out: ended.append(out.shape[1]))
    score_all(model, sequences)
    whole = [(*p, *c) for p, c in zip(sequences.prompts, sequences.completions, strict=True)]
    beginnings = len({(ids[:end]) for ids in whole for end in range(1, len(ids) + 1)})
    # Prompts are in separate trees, even if they begin alike (5 * 12). Trees are padded to a multiple of eight (5 * 8).
    assert sum(read) <= beginnings + 5 * 12 + 5 * 8
    assert sum(ended) == len(set(whole))
    assert not model.model.layers[-1].mlp._forward_hooks and not model.model.layers[-1].mlp._forward_pre_hooks


def test_a_model_that_runs_its_last_layer_twice_is_read_as_packed_rows() -> None:
    model = made(qwen3)
    model.model.layers[0] = model.model.layers[2]
    assert not reads_trees(model)
    sequences = samples(5)
    torch.testing.assert_close(score_all(model, sequences), alone(model, sequences).float(), **EXACT)


def test_the_first_sequence_whose_score_is_not_finite_is_named() -> None:
    model = made(qwen3)
    with torch.no_grad():
        model.model.embed_tokens.weight[23] = float("nan")
    fine, broken = ([1, 2], [3, 4]), ([1, 2], [3, 23])
    prompts, completions = zip(fine, fine, broken, fine, broken, strict=True)
    with pytest.raises(UserError, match="sequence 2 is not finite"):
        score_all(model, Sequences(prompts, completions))
    assert not model.model.layers[-1].mlp._forward_hooks
