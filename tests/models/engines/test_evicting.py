"""A budget of keys and values: a token-by-token reference, the limit of the whole text, batches, and refusals."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.agents.strategies.heavy_hitters import HeavyHitters
from models.agents.strategy import Strategic
from models.base.errors import UserError
from models.engines.decoding_loop import complete
from models.engines.engine import CompletionRequest, EngineSettings, Generated, TokenSampling
from models.engines.evicting import CacheBudget, EvictingDecoding
from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import Voice
from models.learner.log_probs import row_states, use_packed_attention
from models.policies.folder import save_model_folder
from tests.support.tiny_models import tiny_policy, word_tokenizer
from tests.support.tiny_resources import CODEC

SIZE, END = 32, 1
PROMPTS = [(3, 4, 5, 6, 7, 8, 9), (10, 11, 12), (5, 5, 3, 9)]


@pytest.fixture(scope="module")
def model() -> Any:
    made = tiny_policy(spread=2.0)
    use_packed_attention(made)
    return made


def requests_of(*prompts: tuple[int, ...], samples: int = 2, tokens: int = 10) -> list[CompletionRequest]:
    return [CompletionRequest(prompt, seed, tokens) for prompt in prompts for seed in range(samples)]


def drawn(
    model: Any, requests: list[CompletionRequest], budget: CacheBudget | None, drawing: TokenSampling | None = None
) -> list[Generated]:
    voice = Voice(lambda: nullcontext(model), budget=budget)
    return complete([voice], requests, drawing or TokenSampling(), end=END, most=64)


def by_definition(model: Any, prompt: tuple[int, ...], completion: tuple[int, ...], budget: CacheBudget) -> Tensor:
    """Return the log-prob of each token, computed token by token with lists of kept tokens, [tokens]."""
    ids = [*prompt, *completion]
    kept: list[list[set[int]]] = [[set(range(len(prompt)))] for _ in model.model.layers]  # one key head
    scores = [torch.zeros(len(ids), dtype=torch.float64) for _ in model.model.layers]

    def drop(layer: int, newest: int) -> None:
        recent = {t for t in kept[layer][0] if newest - t < budget.recent}
        others = sorted(kept[layer][0] - recent, key=lambda t: (-float(scores[layer][t]), t))
        kept[layer][0] = recent | set(others[: budget.heavy])

    def run(states: Tensor, places: list[int], memory: list[tuple[Tensor, Tensor]], whole: bool) -> Tensor:
        cos, sin = model.model.rotary_emb(states, torch.tensor([places]))

        def turned(x: Tensor) -> Tensor:
            result: Tensor = x * cos + torch.cat([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1) * sin
            return result

        for number, layer in enumerate(model.model.layers):
            normed, attention = layer.input_layernorm(states), layer.self_attn
            shape = (1, len(places), -1, SIZE)
            query = turned(attention.q_norm(attention.q_proj(normed).view(shape)).transpose(1, 2))[0]
            key = turned(attention.k_norm(attention.k_proj(normed).view(shape)).transpose(1, 2))[0]
            value = attention.v_proj(normed).view(shape).transpose(1, 2)[0]
            keys, values = torch.cat([memory[number][0], key], 1), torch.cat([memory[number][1], value], 1)
            memory[number] = keys, values
            products = query @ keys.transpose(1, 2) / SIZE**0.5
            if whole:
                products = products.masked_fill(torch.ones_like(products[0]).triu(1).bool(), float("-inf"))
            else:
                kept[number][0].add(places[0])
                out = [t for t in range(keys.shape[1]) if t not in kept[number][0]]
                products[..., out] = float("-inf")
            weights = products.softmax(-1)
            scores[number][: keys.shape[1]] += weights.sum((0, 1))
            drop(number, places[-1])
            mixed = (weights @ values).transpose(0, 1).reshape(1, len(places), -1)
            states = states + attention.o_proj(mixed)
            states = states + layer.mlp(layer.post_attention_layernorm(states))
        log_probs: Tensor = torch.log_softmax(model.lm_head(model.model.norm(states))[0, -1], -1)
        return log_probs

    nothing = torch.zeros(1, 0, SIZE, dtype=torch.float64)
    memory = [(nothing, nothing) for _ in model.model.layers]
    embed = model.model.embed_tokens
    with torch.no_grad():
        following = run(embed(torch.tensor([list(prompt)])), list(range(len(prompt))), memory, True)
        log_probs = []
        for place, token in enumerate(completion, len(prompt)):
            log_probs.append(following[token])
            following = run(embed(torch.tensor([[token]])), [place], memory, False)
    return torch.stack(log_probs)


@pytest.mark.parametrize("heavy, recent", [(2, 2), (0, 3), (4, 1)])
def test_the_log_probs_are_those_of_the_definition(model: Any, heavy: int, recent: int) -> None:
    budget, requests = CacheBudget(heavy, recent), requests_of(*PROMPTS)
    full = drawn(model, requests, None)
    for request, made in zip(requests, drawn(model, requests, budget), strict=True):
        assert made.log_probs is not None
        expected = by_definition(model, tuple(request.prompt), made.tokens, budget)
        assert torch.allclose(made.log_probs.double(), expected, atol=1e-6)
    assert any(a.tokens != b.tokens for a, b in zip(full, drawn(model, requests, budget), strict=True))


@pytest.mark.parametrize("budget", [CacheBudget(20, 1), CacheBudget(0, 20)])
def test_a_budget_of_the_whole_text_changes_no_bit(model: Any, budget: CacheBudget) -> None:
    requests = requests_of(*PROMPTS)
    for plain, made in zip(drawn(model, requests, None), drawn(model, requests, budget), strict=True):
        assert made.tokens == plain.tokens and made.log_probs is not None and plain.log_probs is not None
        assert torch.equal(made.log_probs, plain.log_probs)


def test_a_completion_does_not_depend_on_the_others_of_its_batch(model: Any) -> None:
    budget, requests = CacheBudget(2, 2), requests_of(*PROMPTS, samples=3, tokens=24)
    together = drawn(model, requests, budget)
    assert len({len(made.tokens) for made in together}) > 1  # some end early, so that the batch is narrowed
    for request, made in zip(requests, together, strict=True):
        (alone,) = drawn(model, [request], budget)
        assert alone.tokens == made.tokens


def test_at_most_the_budget_is_kept_and_the_newest_token_always_is() -> None:
    decoding = EvictingDecoding(torch.tensor([5, 3]), 2, 4, budget=CacheBudget(1, 2))
    policy = tiny_policy()
    use_packed_attention(policy)
    ids, places = torch.tensor([3, 4, 5, 6, 7, 8, 9, 10]), torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    with torch.no_grad():
        row_states(policy, ids, places, decoding, None)
        for step in range(3):
            decoding.step = step
            row_states(policy, torch.tensor([3, 4, 5, 6]), torch.tensor([5, 5, 3, 3]) + step, decoding, None)
            for layer in decoding.layers.values():
                assert (layer.kept.sum(-1) == 3).all() and layer.kept[..., 5 + step].all()


def test_the_strategy_measures_how_far_it_is_from_the_policy(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, spread=2.0), word_tokenizer(), tmp_path)
    engine = TransformersEngine(tmp_path, EngineSettings(name="transformers", precision="float32"), end=END)
    requests, gaps = requests_of(*PROMPTS, samples=16), {}
    for heavy in (30, 1):
        strategic = Strategic(engine, CODEC, HeavyHitters(heavy=heavy, recent=1), 64)
        turns = strategic.complete(requests, TokenSampling(log_probs=False))
        assert all(turn.log_probs is None for turn in turns)
        gaps[heavy] = strategic.policy.spent.metrics()["strategy/log_prob_gap"]
    assert abs(gaps[30]) < 1e-5 and gaps[1] > 0.01


def test_a_model_that_limits_its_attention_itself_is_refused(model: Any) -> None:
    decoding = EvictingDecoding(torch.tensor([2]), 1, 1, budget=CacheBudget(1, 1))
    rows = torch.zeros(1, 1, 2, 4)
    with pytest.raises(UserError, match="without a sliding window"):
        decoding.attend(model, rows, rows, rows, 1.0, 4, None)
