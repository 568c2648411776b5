"""The transformers engine: greedy and sampled completions, their log-probs, scores, and the transfer of weights."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.restart import Restarting
from models.engines.transformers_engine import TransformersEngine
from models.policies.folder import save_model_folder
from tests.support.device_here import DEVICE
from tests.support.tiny_models import GREEDY, PROMPTS, SEQUENCES, contents, plain_log_probs, tiny_policy, word_tokenizer

END = 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("engine") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture
def engine(folder: Path) -> TransformersEngine:
    return TransformersEngine(folder, EngineSettings(precision="float32"), end=END)


def greedy_by_hand(model: nn.Module, prompt: Sequence[int], limit: int) -> tuple[int, ...]:
    ids = list(prompt)
    while len(ids) < len(prompt) + limit and (len(ids) == len(prompt) or ids[-1] != END):
        ids.append(int(model(torch.tensor([ids], device=DEVICE)).logits[0, -1].argmax()))
    return tuple(ids[len(prompt) :])


def test_greedy_is_the_argmax_in_a_batch_of_prompts_of_different_lengths(engine: TransformersEngine) -> None:
    model = tiny_policy(torch.float32)
    completions = engine.generate(PROMPTS, GREEDY, seed=0)
    assert [row[0].tokens for row in completions] == [greedy_by_hand(model, prompt, 12) for prompt in PROMPTS]


def test_scores_are_the_log_probs_by_definition(engine: TransformersEngine) -> None:
    scores = engine.score(SEQUENCES.prompts, SEQUENCES.completions)
    expected = plain_log_probs(tiny_policy(), SEQUENCES)
    for row, exact in zip(scores, expected, strict=True):
        torch.testing.assert_close(torch.tensor(row), exact.float().cpu(), rtol=0, atol=1e-5)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    "shape", [{}, {"temperature": 0.7}, {"top_k": 3}, {"top_p": 0.6}, {"temperature": 1.5, "top_k": 5, "top_p": 0.8}]
)
def test_sampled_log_probs_are_those_of_the_distribution_that_was_drawn_from(
    engine: TransformersEngine, shape: dict[str, Any]
) -> None:
    model = tiny_policy()
    sampling = Sampling(max_tokens=6, samples=4, **shape)
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, sampling, seed=0), strict=True):
        for generated in group:
            assert generated.log_probs is not None
            for at, (token, value) in enumerate(zip(generated.tokens, generated.log_probs.tolist(), strict=True)):
                logits = model(torch.tensor([[*prompt, *generated.tokens[:at]]], device=DEVICE)).logits[0, -1]
                expected = processed(logits / sampling.temperature, sampling.top_k, sampling.top_p)[token]
                assert value == pytest.approx(float(expected.detach()), abs=1e-4)


def processed(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Apply top-k, then top-p, by definition: keep the likeliest tokens until their share reaches p."""
    order = logits.argsort(descending=True)[: top_k or None]
    probability = logits[order].softmax(0)
    kept = order[(probability.cumsum(0) - probability) < top_p]
    whole = torch.full_like(logits, -torch.inf)
    whole[kept] = logits[kept].log_softmax(0)
    return whole


def test_the_share_of_each_token_is_its_probability(engine: TransformersEngine) -> None:
    (group,) = engine.generate([PROMPTS[0]], Sampling(max_tokens=1, samples=4000, temperature=0.7), seed=3)
    shares = torch.bincount(torch.tensor([generated.tokens[0] for generated in group]), minlength=24) / 4000
    expected = (tiny_policy()(torch.tensor([PROMPTS[0]], device=DEVICE)).logits[0, -1] / 0.7).softmax(0).cpu()
    assert (shares - expected).abs().max() < 0.03  # four standard deviations


def test_a_seed_is_a_completion_and_another_seed_another(engine: TransformersEngine) -> None:
    sampling = Sampling(max_tokens=8, samples=3)
    first = engine.generate(PROMPTS, sampling, seed=1)
    torch.rand(7)
    again, other = (contents(engine.generate(PROMPTS, sampling, seed=seed)) for seed in (1, 2))
    assert again == contents(first) != other
    assert len({generated.tokens for generated in first[0]}) == 3


def test_log_probs_own_their_memory_and_may_enter_a_gradient(engine: TransformersEngine) -> None:
    """A view would keep the tensor of the whole batch in memory, and autograd cannot save an inference tensor."""
    (group,) = engine.generate([[3, 4]], Sampling(max_tokens=8, samples=3), seed=0)
    for completion in group:
        noted = completion.log_probs
        assert noted is not None
        assert noted.dtype == torch.float32 and noted.device.type == "cpu" and not noted.is_inference()
        assert noted.untyped_storage().nbytes() == 4 * len(completion.tokens)
    assert noted is not None
    weight = torch.ones(len(noted), requires_grad=True)
    (weight * noted).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, noted)


def test_a_completion_ends_at_its_first_end_token_or_at_the_limit(engine: TransformersEngine) -> None:
    groups = engine.generate(PROMPTS, Sampling(max_tokens=5, samples=16, temperature=2.0), seed=0)
    completions = [generated for group in groups for generated in group]
    assert {generated.finished for generated in completions} == {True, False}
    for generated in completions:
        assert generated.finished == (generated.tokens[-1] == END) and END not in generated.tokens[:-1]
        assert generated.finished or len(generated.tokens) == 5
        assert generated.log_probs is not None
        assert len(generated.log_probs) == len(generated.tokens)


def test_how_many_run_at_once_changes_nothing_of_the_greedy_answers(folder: Path, engine: TransformersEngine) -> None:
    narrow = TransformersEngine(folder, EngineSettings(max_sequences=2, precision="float32"), end=END)
    completions, expected = narrow.generate(PROMPTS, GREEDY, 0), engine.generate(PROMPTS, GREEDY, 0)
    assert [row[0].tokens for row in completions] == [row[0].tokens for row in expected]
    assert [len(group) for group in narrow.generate(PROMPTS, Sampling(max_tokens=2, samples=3), 0)] == [3] * 5


def test_new_weights_are_copied_and_old_ones_forgotten(engine: TransformersEngine) -> None:
    other = tiny_policy(torch.float32, seed=1)
    engine.load(other.state_dict().items())
    scores = engine.score(SEQUENCES.prompts, SEQUENCES.completions)
    expected = torch.cat(plain_log_probs(tiny_policy(seed=1), SEQUENCES)).float().cpu()
    torch.testing.assert_close(torch.tensor([value for row in scores for value in row]), expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        other.model.embed_tokens.weight.zero_()  # later changes of the learner must not reach the engine
    assert engine.score(SEQUENCES.prompts, SEQUENCES.completions) == scores


def test_a_models_own_habits_of_sampling_do_not_count(folder: Path, engine: TransformersEngine, tmp_path: Path) -> None:
    model = tiny_policy(torch.float32)
    model.generation_config.repetition_penalty = 5.0
    model.generation_config.top_k = 1
    model.generation_config.do_sample = True
    save_model_folder(model, word_tokenizer(), tmp_path / "policy")
    habitual = TransformersEngine(tmp_path / "policy", EngineSettings(precision="float32"), end=END)
    sampling = Sampling(max_tokens=8, samples=3)
    assert contents(habitual.generate(PROMPTS, sampling, 0)) == contents(engine.generate(PROMPTS, sampling, 0))


def test_no_prompts_give_no_completions(engine: TransformersEngine) -> None:
    assert engine.generate([], Sampling(), 0) == [] and engine.score([], []) == []


def test_it_is_what_opens_by_name_and_a_folder_without_weights_is_one_clear_line(folder: Path, tmp_path: Path) -> None:
    engine = open_engine(folder, EngineSettings(name="transformers", precision="float32"), longest=64, end=END, seed=0)
    assert isinstance(engine, Restarting) and isinstance(engine.engine, TransformersEngine)
    engine.close()
    with pytest.raises(UserError, match="no such model folder"):
        open_engine(
            tmp_path / "none", EngineSettings(name="transformers", precision="float32"), longest=64, end=END, seed=0
        )


def test_prompts_of_growing_length_do_not_disturb_each_other(engine: TransformersEngine) -> None:
    prompts = [[3 + at % 9 for at in range(length)] for length in (1, 2, 5, 17, 40)]
    together = [row[0].tokens for row in engine.generate(prompts, GREEDY, 0)]
    assert together == [engine.generate([prompt], GREEDY, 0)[0][0].tokens for prompt in prompts]
    assert all(len(first) < len(other) for first, other in pairwise(prompts))
