"""Log-probs of sampled tokens: definition, engines and learner agree for every setting of the sampling."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from models.engines.engine import EngineSettings, Generated, Sampling
from models.engines.open_engine import open_engine
from models.engines.restart import Restarting
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import Distribution
from models.learner.log_probs import completion_log_probs
from models.learner.packing import Sequences
from models.policies.folder import save_model_folder
from tests.support.device_here import DEVICE
from tests.support.tiny_models import NO_VLLM, PROMPTS, VOCABULARY, contents, tiny_policy, word_tokenizer

SHAPES: list[dict[str, Any]] = [
    {"temperature": 1.0},
    {"temperature": 0.7},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 20},
    {"temperature": 1.3, "top_k": 5, "top_p": 0.8},
]
END = 1


@pytest.fixture(scope="module", params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.slow])])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarting]:
    folder = tmp_path_factory.mktemp("distribution") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    engine = open_engine(
        folder, EngineSettings(name=request.param, max_sequences=64, precision="float32"), longest=64, end=END, seed=0
    )
    assert isinstance(engine, Restarting)
    yield engine
    engine.close()


@pytest.fixture
def engine(running: Restarting) -> Restarting:
    running.load(tiny_policy(torch.float32, spread=3.0).state_dict().items())
    return running


def by_definition(logits: Tensor, sampling: Sampling) -> Tensor:
    """Return log-probs of the distribution that `Sampling` describes, float64, [vocabulary], without a mask."""
    logits = logits.double() / sampling.temperature
    order = logits.argsort(descending=True).tolist()
    if sampling.top_k:
        order = [token for token in order if logits[token] >= logits[order[sampling.top_k - 1]]]
    whole, held, kept = logits[order].softmax(0), 0.0, []
    for share, token in zip(whole.tolist(), order, strict=True):
        if held < sampling.top_p:
            kept.append(token)
        held += share
    actual = torch.full_like(logits, -torch.inf)
    actual[kept] = logits[kept].log_softmax(0)
    return actual


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_probs_are_those_of_the_truncated_distribution_to_1e_4(engine: Restarting, shape: dict[str, Any]) -> None:
    sampling = Sampling(max_tokens=8, samples=4, **shape)
    exact = tiny_policy(spread=3.0)
    for prompt, group in zip(PROMPTS, engine.generate(PROMPTS, sampling, seed=0), strict=True):
        for generated in group:
            logits = exact(torch.tensor([[*prompt, *generated.tokens]], device=DEVICE)).logits[0, len(prompt) - 1 : -1]
            expected = [
                float(by_definition(row, sampling)[token])
                for row, token in zip(logits.detach(), generated.tokens, strict=True)
            ]
            assert generated.log_probs is not None
            assert generated.log_probs.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_log_probs_of_samples_are_the_learners(engine: Restarting, shape: dict[str, Any]) -> None:
    groups = engine.generate(PROMPTS, Sampling(max_tokens=8, samples=4, **shape), seed=0)
    flat = [(prompt, generated) for prompt, group in zip(PROMPTS, groups, strict=True) for generated in group]
    sequences = Sequences([prompt for prompt, _ in flat], [generated.tokens for _, generated in flat])
    policy = tiny_policy(torch.float32, spread=3.0)
    learner, _ = completion_log_probs(policy, sequences, distribution=Distribution(**shape))
    said = torch.cat([generated.log_probs for _, generated in flat if generated.log_probs is not None])
    torch.testing.assert_close(said, learner.detach().cpu(), rtol=0, atol=1e-4)


def test_truncation_leaves_tokens_out_in_the_cases_above() -> None:
    logits = tiny_policy(spread=3.0)(torch.tensor([PROMPTS[0]], device=DEVICE)).logits[0, -1].detach()
    left = [int(by_definition(logits, Sampling(**shape)).isfinite().sum()) for shape in SHAPES]
    assert left[0] == left[1] == VOCABULARY and left[3] == 20 and 1 < left[2] < VOCABULARY and 1 < left[4] <= 5


def first_log_probs(group: Sequence[Generated]) -> set[float]:
    return {round(float(made.log_probs[0]), 4) for made in group if made.log_probs is not None}


def test_tokens_that_tie_with_the_kth_all_stay_and_at_the_border_of_top_p_vllm_cuts_ties(engine: Restarting) -> None:
    engine.load((name, torch.zeros_like(tensor)) for name, tensor in tiny_policy(torch.float32).state_dict().items())
    (group,) = engine.generate([[3]], Sampling(max_tokens=1, samples=64, top_k=3), seed=0)
    assert first_log_probs(group) == {round(-math.log(VOCABULARY), 4)}
    assert len({generated.tokens for generated in group}) > 3
    (group,) = engine.generate(
        [[3]], Sampling(max_tokens=1, samples=64, top_p=0.49), seed=0
    )  # 11 / 24 < 0.49 < 12 / 24
    left = (
        VOCABULARY if isinstance(engine.engine, TransformersEngine) else 12
    )  # transformers keeps all ties, like the learner
    assert first_log_probs(group) == {round(-math.log(left), 4)}


@pytest.mark.rotating(of=6)
def test_greedy_ignores_top_k_and_top_p(engine: Restarting) -> None:
    plain = engine.generate(PROMPTS, Sampling(max_tokens=6, temperature=0.0), seed=0)
    greedy = Sampling(max_tokens=6, temperature=0.0, top_k=2, top_p=0.5)
    assert contents(engine.generate(PROMPTS, greedy, seed=0)) == contents(plain)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("shape", [{"samples": 3}, {"temperature": 0.0}], ids=str)
def test_completions_are_the_same_where_no_log_probs_are_asked_for(engine: Restarting, shape: dict[str, Any]) -> None:
    with_them = engine.generate(PROMPTS, Sampling(max_tokens=12, **shape), 3)
    without = engine.generate(PROMPTS, Sampling(max_tokens=12, log_probs=False, **shape), 3)
    for group, bare in zip(with_them, without, strict=True):
        assert [made.tokens for made in bare] == [made.tokens for made in group]
        assert all(made.log_probs is None for made in bare)
