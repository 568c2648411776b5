"""Decoding with shared prompts gives the distribution of the model's own forward pass, for each architecture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.policies.folder import save_model_folder
from tests.support.architectures import built
from tests.support.device_here import DEVICE
from tests.support.tiny_models import word_tokenizer

PROMPTS = [[5, 6, 7], [9, 10, 11, 12, 13, 14, 15, 16, 17, 18], [20]]
NO_END = 60
"""A token that is hardly ever drawn."""


@pytest.fixture(params=["llama", "qwen3", "mistral, window 5", "gemma2, window 6", "gemma3, window 6", "gpt2"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> TransformersEngine:
    model = built(request.param, torch.float32)
    save_model_folder(model, word_tokenizer(), tmp_path / "policy")
    return TransformersEngine(tmp_path / "policy", EngineSettings(max_sequences=64, precision="float32"), end=NO_END)


def own_log_probs(model: nn.Module, prompt: Sequence[int], completion: tuple[int, ...]) -> Tensor:
    """Return log-probs by definition: the model's own forward pass over the whole sequence, without a cache."""
    ids = torch.tensor([[*prompt, *completion]], device=DEVICE)
    with torch.no_grad():
        logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(1, ids[0, len(prompt) :, None]).squeeze(1).cpu()


def test_log_probs_of_drawn_tokens_are_those_of_a_plain_forward_pass(engine: TransformersEngine) -> None:
    groups = engine.generate(PROMPTS, Sampling(max_tokens=20, samples=5), seed=0)
    assert [len(group) for group in groups] == [5, 5, 5]
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for made in group:
            torch.testing.assert_close(
                made.log_probs, own_log_probs(engine.model, prompt, made.tokens), rtol=0, atol=2e-4
            )
    assert len({made.tokens for group in groups for made in group}) > 10


def test_greedy_takes_the_likeliest_token_of_a_plain_forward_pass(engine: TransformersEngine) -> None:
    groups = engine.generate(PROMPTS, Sampling(max_tokens=8, temperature=0.0), seed=0)
    for prompt, (made,) in zip(PROMPTS, groups, strict=True):
        ids = list(prompt)
        for token in made.tokens:
            with torch.no_grad():
                logits = engine.model(input_ids=torch.tensor([ids], device=DEVICE), use_cache=False).logits[0, -1]
            assert float(logits[token]) >= float(logits.max()) - 1e-4
            ids.append(token)


def ending_engine(folder: Path, most: int = 64) -> TransformersEngine:
    """Open an engine on a nearly uniform policy, so that the end token is drawn often."""
    model = built("llama", torch.float32)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.05)
    save_model_folder(model, word_tokenizer(), folder)
    return TransformersEngine(folder, EngineSettings(max_sequences=most, precision="float32"), end=7)


def test_sequences_that_end_early_are_dropped_and_the_rest_go_on_rightly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrowed = []
    engine = ending_engine(tmp_path / "policy")
    from models.engines import shared_decoding

    plain = shared_decoding.Decoding.narrow

    def narrow(self: shared_decoding.Decoding, *args: Any) -> None:
        narrowed.append(len(args[0]))
        plain(self, *args)

    monkeypatch.setattr(shared_decoding.Decoding, "narrow", narrow)
    groups = engine.generate(PROMPTS, Sampling(max_tokens=60, samples=12), seed=1)
    assert narrowed
    lengths = [len(made.tokens) for group in groups for made in group]
    assert min(lengths) < 10 < 40 < max(lengths)
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for made in group:
            assert made.finished == (made.tokens[-1] == 7) and 7 not in made.tokens[:-1]
            torch.testing.assert_close(
                made.log_probs, own_log_probs(engine.model, prompt, made.tokens), rtol=0, atol=2e-4
            )


@pytest.mark.rotating(of=6)
def test_tokens_come_up_as_often_as_their_probability_says(tmp_path: Path) -> None:
    engine = ending_engine(tmp_path / "policy", most=20_000)
    (group,) = engine.generate([[5, 6]], Sampling(max_tokens=1, samples=20_000), seed=3)
    seen = torch.bincount(torch.tensor([made.tokens[0] for made in group]), minlength=61) / len(group)
    with torch.no_grad():
        p = torch.softmax(engine.model(input_ids=torch.tensor([[5, 6]], device=DEVICE)).logits[0, -1], -1).cpu()
    deviation = (seen - p).abs() / (p * (1 - p) / len(group)).sqrt()
    assert float(deviation.max()) < 4.5  # 61 binomials, 20,000 draws each


def test_more_samples_than_fit_at_once_are_made_in_turns(tmp_path: Path) -> None:
    engine = ending_engine(tmp_path / "policy")
    groups = engine.generate(PROMPTS, Sampling(max_tokens=4, samples=100), seed=0)
    assert [len(group) for group in groups] == [100, 100, 100]
