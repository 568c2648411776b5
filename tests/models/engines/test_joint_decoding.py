"""Joint decoding: the next token's distribution is the enumerated product of the voices', to any power."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from models.base.errors import UserError
from models.engines import decoding_loop
from models.engines.decoding_loop import complete
from models.engines.engine import CompletionRequest, EngineSettings, Sampling, TokenSampling, requests_of
from models.engines.restart import Restarting
from models.engines.transformers_engine import TransformersEngine
from models.engines.voice import AddedTerm, JointDecoding, TermState, Voice
from models.learner.log_probs import use_packed_attention
from models.policies.folder import save_model_folder
from tests.support.device_here import placed
from tests.support.tiny_models import PROMPTS, contents, tiny_policy, word_tokenizer

END = 1
SETTINGS = EngineSettings(name="transformers", precision="float32")


@pytest.fixture(scope="module")
def models() -> list[Any]:
    """Make three models of two sizes over six tokens, in float64."""
    made = [tiny_policy(seed=seed, vocabulary=6, hidden=hidden) for seed, hidden in ((0, 64), (1, 32), (2, 32))]
    for model in made:
        use_packed_attention(model)
    return made


def voice(model: Any, weight: float = 1.0) -> Voice:
    return Voice(lambda: nullcontext(model), weight)


def by_definition(model: Any, prefix: Sequence[int], temperature: float = 1.0) -> Tensor:
    """Return log p(. | prefix), [vocabulary], from a plain forward pass."""
    with torch.no_grad():
        logits: Tensor = model(placed(torch.tensor([list(prefix)]))).logits[0, -1]
    return torch.log_softmax(logits / temperature, dim=-1)


class Distributions:
    """The distributions that tokens are drawn from, in the order of the steps, [steps] tensors [rows, vocabulary]."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Tensor] = []
        draw = decoding_loop.draw_tokens

        def record(log_probs: Tensor, points: Tensor) -> Tensor:
            self.steps.append(log_probs.clone())
            return draw(log_probs, points)

        monkeypatch.setattr(decoding_loop, "draw_tokens", record)


@pytest.mark.parametrize("b", [1.0, 0.5, -2.0])
def test_the_distribution_is_the_enumerated_product_after_every_prefix(
    models: list[Any], b: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, tuned, base = models
    voices = [voice(large), voice(tuned, b), voice(base, -b)]
    prefixes = [(3, 4, *rest) for length in range(3) for rest in product(range(6), repeat=length)]
    drawn = Distributions(monkeypatch)
    requests = [CompletionRequest(prefix, seed, 1) for seed, prefix in enumerate(prefixes)]
    complete(voices, requests, TokenSampling(), end=END, most=len(requests))
    (log_probs,) = drawn.steps
    for prefix, row in zip(prefixes, log_probs, strict=True):
        factors = [by_definition(model, prefix) for model in models]
        powers = (factors[0].exp() * (factors[1].exp() / factors[2].exp()) ** b).log()
        torch.testing.assert_close(row, torch.log_softmax(powers, -1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_it_holds_at_every_step_of_a_completion(
    models: list[Any], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    voices = [voice(model, weight) for model, weight in zip(models, (1.0, 1.5, -1.5), strict=True)]
    drawn = Distributions(monkeypatch)
    requests = requests_of([[3, 4], [2]], Sampling(max_tokens=6, samples=2), 3)
    made = complete(voices, requests, TokenSampling(temperature=temperature), end=END, most=4)
    compared = 0
    for row, (request, completion) in enumerate(zip(requests, made, strict=True)):
        for step in range(len(completion.tokens)):
            prefix = (*request.prompt, *completion.tokens[:step])
            parts = [by_definition(model, prefix, temperature) for model in models]
            expected = torch.log_softmax(parts[0] + 1.5 * (parts[1] - parts[2]), -1)
            torch.testing.assert_close(drawn.steps[step][row], expected, rtol=0, atol=1e-12)
            compared += 1
    assert compared > 8


def test_equal_small_models_change_nothing_and_a_uniform_base_gives_a_temperature(
    models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """p * (p / uniform)^b is p at temperature 1 / (1 + b)."""
    large, tuned, _ = models
    uniform = tiny_policy(vocabulary=6, hidden=32)
    use_packed_attention(uniform)
    with torch.no_grad():
        for parameter in uniform.parameters():
            parameter.zero_()
    request = [CompletionRequest((3, 4), 0, 1)]
    for voices, temperature in (
        ([voice(large), voice(tuned, 2.0), voice(tuned, -2.0)], 1.0),
        ([voice(large), voice(large, 3.0), voice(uniform, -3.0)], 0.25),
    ):
        drawn = Distributions(monkeypatch)
        complete(voices, request, TokenSampling(), end=END, most=1)
        expected = by_definition(large, (3, 4), temperature)
        torch.testing.assert_close(drawn.steps[0][0], expected, rtol=0, atol=1e-12)


def test_a_voice_of_weight_zero_is_not_read_and_changes_no_bit(models: list[Any]) -> None:
    def refuse() -> Any:
        raise AssertionError("it is read")

    requests = requests_of(PROMPTS_OF_SIX, Sampling(max_tokens=12, samples=4), 3)
    alone = complete([voice(models[0])], requests, TokenSampling(), end=END, most=8)
    silent = [voice(models[0]), Voice(refuse, 0.0), Voice(refuse, -0.0)]
    assert contents(complete(silent, requests, TokenSampling(), end=END, most=8)) == contents(alone)


PROMPTS_OF_SIX = [[token % 6 for token in prompt] for prompt in PROMPTS]


@pytest.mark.rotating(of=6)
def test_the_completions_do_not_depend_on_the_batch_they_are_drawn_in(models: list[Any]) -> None:
    """Batches of one never narrow; the batch of all narrows as sequences end."""
    voices = [voice(model, weight) for model, weight in zip(models, (1.0, 1.0, -1.0), strict=True)]
    requests = requests_of(PROMPTS_OF_SIX, Sampling(max_tokens=24, samples=6), 9)
    together, apart = (
        [made.tokens for made in complete(voices, requests, TokenSampling(), end=END, most=most)] for most in (30, 1)
    )
    assert together == apart and len(set(map(len, together))) > 3


def test_top_p_and_top_k_cut_the_mixture_and_greedy_takes_its_likeliest_token(
    models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    voices = [voice(model, weight) for model, weight in zip(models, (1.0, 2.0, -2.0), strict=True)]
    request = [CompletionRequest((3, 4), 0, 1)]
    parts = [by_definition(model, (3, 4)) for model in models]
    whole = torch.softmax(parts[0] + 2.0 * (parts[1] - parts[2]), -1)
    order = whole.argsort(descending=True)
    kept = int((whole[order].cumsum(0) < 0.9).sum()) + 1
    for drawing, count in ((TokenSampling(top_p=0.9), kept), (TokenSampling(top_k=2), 2)):
        drawn = Distributions(monkeypatch)
        complete(voices, request, drawing, end=END, most=1)
        expected = torch.zeros_like(whole)
        expected[order[:count]] = whole[order[:count]] / whole[order[:count]].sum()
        torch.testing.assert_close(drawn.steps[0][0].exp(), expected, rtol=0, atol=1e-12)
    (greedy,) = complete(voices, request, TokenSampling(temperature=0.0), end=END, most=1)
    assert greedy.tokens == (int(order[0]),)


class Only(AddedTerm):
    """A term that allows the tokens `allowed` alone, each with its own bonus."""

    def __init__(self, allowed: dict[int, float]) -> None:
        self.allowed = allowed

    def begin(self, requests: Sequence[CompletionRequest], group_size: int) -> TermState:
        allowed = self.allowed

        class State(TermState):
            def added(self, log_probs: Tensor, rows: Tensor, step: int) -> Tensor:
                term = torch.full_like(log_probs, float("-inf"))
                for token, bonus in allowed.items():
                    term[:, token] = bonus
                return term

            def read(self, tokens: Tensor, rows: Tensor, step: int) -> None:
                return None

        return State()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_term_is_added_before_the_division_by_the_temperature(
    models: list[Any], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = Distributions(monkeypatch)
    terms = [Only({2: 0.3, 5: -1.0}), Only({2: 0.1, 5: 0.0, 4: 9.0})]
    drawing = TokenSampling(temperature=temperature)
    complete([voice(models[0])], [CompletionRequest((3, 4), 0, 1)], drawing, end=END, most=1, terms=terms)
    logits = by_definition(models[0], (3, 4))
    weights = {2: logits[2] + 0.4, 5: logits[5] - 1.0}
    total = torch.logsumexp(torch.stack([weight / temperature for weight in weights.values()]), 0)
    for token in range(6):
        expected = (weights[token] / temperature - total).exp() if token in weights else torch.tensor(0.0)
        assert float(drawn.steps[0][0, token].exp()) == pytest.approx(float(expected), abs=1e-12)


def test_where_a_veto_leaves_no_allowed_token_the_terms_alone_decide(
    models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    veto = Voice(lambda: nullcontext(models[1]), veto_top_p=1e-6)  # only its likeliest token may be drawn
    likeliest = int(by_definition(models[1], (3, 4)).argmax())
    others = [token for token in range(6) if token != likeliest]
    request = [CompletionRequest((3, 4), 0, 1)]
    for allowed, expected in (
        ({others[0]: 0.0, others[1]: 1.0}, {others[0]: 1 / (1 + math.e), others[1]: math.e / (1 + math.e)}),
        ({others[0]: 5.0, likeliest: -3.0}, {others[0]: 0.0, likeliest: 1.0}),
    ):
        drawn = Distributions(monkeypatch)
        complete([voice(models[0]), veto], request, TokenSampling(), end=END, most=1, terms=[Only(allowed)])
        for token, probability in expected.items():
            assert float(drawn.steps[0][0, token].exp()) == pytest.approx(probability, abs=1e-12)


def test_the_engine_decodes_with_other_voices_and_gives_its_own_completions_without(tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, spread=3.0), word_tokenizer(), tmp_path)
    engine = TransformersEngine(tmp_path, SETTINGS, end=END)
    other = tiny_policy(torch.float32, seed=1, spread=3.0)
    use_packed_attention(other)
    requests = requests_of(PROMPTS, Sampling(max_tokens=8, samples=2), 3)
    alone = contents(engine.complete(requests, TokenSampling()))
    restarting = Restarting(lambda: engine, engine.dtype)
    silent = JointDecoding((voice(other, 0.0), voice(other, -0.0)))
    assert contents(restarting.complete_with(requests, TokenSampling(), silent)) == alone
    assert contents(restarting.complete_with(requests, TokenSampling(), JointDecoding((voice(other),)))) != alone


def test_wrong_calls_are_refused(models: list[Any], tmp_path: Path) -> None:
    request = [CompletionRequest((3,), 0, 1)]
    with pytest.raises(ValueError, match="no voice has a weight"):
        complete([voice(models[0], 0.0)], request, TokenSampling(), end=END, most=1)
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), tmp_path)

    class Turns(TransformersEngine):
        def switch(self) -> Any:
            return lambda states, points: None

    with pytest.raises(UserError, match="writes by turns with its reference"):
        Turns(tmp_path, SETTINGS, end=END).complete_with(request, TokenSampling(), JointDecoding((voice(models[0]),)))
