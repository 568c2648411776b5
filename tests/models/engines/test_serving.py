"""`serve`: completions that are generated while requests arrive and the engine's weights change."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from models.base.seeds import completion_seed
from models.engines.engine import CompletionRequest, Engine, EngineSettings, Generated, TokenSampling
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import CACHE_BLOCK, VllmEngine
from models.policies.folder import save_model_folder
from tests.support.device_here import placed
from tests.support.tiny_models import NO_VLLM, PROMPTS, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

END = 1
DRAWING = TokenSampling(temperature=1.5)
REQUESTS = {
    10 * place + number: CompletionRequest(prompt, completion_seed(3, place, number), room, stops)
    for place, prompt in enumerate(PROMPTS)
    for number, (room, stops) in enumerate([(24, ()), (3, ()), (1, ()), (24, (7, 5))])
}
"""Four requests for each prompt. The prompts differ in length, the requests in their limits and stop tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("serving") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture(scope="module", params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest, folder: Path) -> Engine:
    if request.param == "vllm":
        made = VllmEngine(folder, EngineSettings(max_sequences=6, precision="float32"), longest=64, end=END, seed=0)
        request.addfinalizer(made.close)
        return made
    return TransformersEngine(folder, EngineSettings(max_sequences=6, precision="float32"), end=END)


@pytest.fixture
def policies(engine: Engine) -> list[Any]:
    """Return three policies with small differences, and load the first into the engine as version 0."""
    models = [tiny_policy(torch.float32)]
    for number in (1, 2):
        other = copy.deepcopy(models[0])
        torch.manual_seed(number)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(0.1 * parameter.std() * torch.randn_like(parameter) if parameter.ndim > 1 else 0)
        models.append(other)
    hand_over(engine, models, 0)
    return models


def hand_over(engine: Engine, models: Sequence[Any], version: int) -> None:
    engine.load(models[version].state_dict().items(), version)


def served(engine: Engine, steps: int = 1000) -> dict[int, Generated]:
    """Serve without new requests until no completion is under way, and return the completions."""
    ended: dict[int, Generated] = {}
    while more := engine.serve({}, DRAWING, steps):
        ended |= more
    return ended


def log_probs_with_kept_cache(models: Sequence[Any], ask: CompletionRequest, made: Generated) -> Tensor:
    """Return log-probs by definition: token by token, with the weights that drew each one, and the cache kept."""
    cache, rows, ids = DynamicCache(), [], placed(torch.tensor([list(ask.prompt)]))
    version_at = dict(made.versions)
    model = models[version_at[0]]
    with torch.no_grad():
        for place, token in enumerate(made.tokens):
            model = models[version_at[place]] if place in version_at else model
            logits = model(ids, past_key_values=cache, use_cache=True).logits[0, -1] / DRAWING.temperature
            rows.append(torch.log_softmax(logits, -1)[token])
            ids = placed(torch.tensor([[token]]))
    return torch.stack(rows).cpu()


def test_what_is_served_is_what_each_gives(engine: Engine, policies: list[Any]) -> None:
    """Requests arrive while others are under way, and there are more of them than the engine has room for."""
    expected = dict(zip(REQUESTS, engine.complete(list(REQUESTS.values()), DRAWING), strict=True))
    numbers = list(REQUESTS)
    ended: dict[int, Generated] = {}
    for at in range(0, len(numbers), 3):
        ended |= engine.serve({number: REQUESTS[number] for number in numbers[at : at + 3]}, DRAWING, 2)
    ended |= served(engine, 1)
    ended |= served(engine)
    assert ended.keys() == REQUESTS.keys()
    for number, made in ended.items():
        assert (made.tokens, made.finished) == (expected[number].tokens, expected[number].finished)
        torch.testing.assert_close(made.log_probs, expected[number].log_probs, rtol=0, atol=1e-5)
        assert made.versions == ((0, 0),)
    assert len({made.tokens for made in ended.values()}) > len(REQUESTS) / 2


def test_each_token_is_drawn_by_the_weights_that_its_span_names_on_the_cache_as_it_is(
    engine: Engine, policies: list[Any]
) -> None:
    ended = engine.serve(REQUESTS, DRAWING, 2)
    for version in (1, 2):
        hand_over(engine, policies, version)
        ended |= engine.serve({}, DRAWING, 2)
    ended |= served(engine)
    assert ended.keys() == REQUESTS.keys()
    spans = [made.versions for made in ended.values()]
    assert {((0, 0),), ((0, 2),)} < set(spans) and any(len(span) == 3 for span in spans)
    apart = []
    for number, made in ended.items():
        said = made.log_probs
        assert said is not None
        torch.testing.assert_close(
            said, log_probs_with_kept_cache(policies, REQUESTS[number], made), rtol=0, atol=2e-4, msg=f"ask {number}"
        )
        for model in policies:
            alone = log_probs_with_kept_cache([model] * 3, REQUESTS[number], made)
            apart.append(float((said - alone).abs().max()))
    assert max(apart) > 0.05, "the policies are as good as one: nothing was shown"


def test_new_weights_leave_nothing_old_to_those_who_begin_after_them(engine: Engine, policies: list[Any]) -> None:
    """The later requests have the same prompts, whose cached prefix comes from the old weights."""
    long = {number: ask for number, ask in REQUESTS.items() if ask.max_tokens == 24}
    ended = engine.serve(long, DRAWING, 1)
    hand_over(engine, policies, 1)
    asked_after = {1000 + number: ask for number, ask in long.items()}
    ended |= engine.serve(asked_after, DRAWING, 3)
    ended |= served(engine)
    expected = engine.complete(list(asked_after.values()), DRAWING)
    assert [ended[number].tokens for number in asked_after] == [made.tokens for made in expected]


def test_scores_and_other_completions_do_not_disturb_what_is_under_way(engine: Engine, policies: list[Any]) -> None:
    expected = engine.complete(list(REQUESTS.values()), DRAWING)
    scores = engine.score(PROMPTS, [[5, 6, 7, 1]] * len(PROMPTS))
    ended = engine.serve(REQUESTS, DRAWING, 2)
    again = engine.score(PROMPTS, [[5, 6, 7, 1]] * len(PROMPTS))
    torch.testing.assert_close(torch.tensor(again), torch.tensor(scores), rtol=0, atol=1e-5)
    others = engine.complete(list(REQUESTS.values()), TokenSampling(temperature=1.5, log_probs=False))
    assert [made.tokens for made in others] == [made.tokens for made in expected]
    ended |= served(engine)
    assert [ended[number].tokens for number in REQUESTS] == [made.tokens for made in expected]


def test_room_for_more_and_longer_completions_is_made_while_others_are_under_way(
    engine: Engine, policies: list[Any]
) -> None:
    requests = [
        CompletionRequest(PROMPTS[0], 1, 8),
        *(CompletionRequest(PROMPTS[2], seed, 4) for seed in range(2, 6)),
        CompletionRequest(PROMPTS[1], 7, 40),
    ]
    expected = engine.complete(requests, DRAWING)
    ended = engine.serve({0: requests[0]}, DRAWING, 1)
    ended |= engine.serve(dict(enumerate(requests[1:5], 1)), DRAWING, 3)
    ended |= engine.serve({5: requests[5]}, DRAWING, 1)
    ended |= served(engine)
    assert [ended[number].tokens for number in range(6)] == [made.tokens for made in expected]


def test_what_is_dropped_ends_nowhere_and_changes_no_other(engine: Engine, policies: list[Any]) -> None:
    expected = dict(zip(REQUESTS, engine.complete(list(REQUESTS.values()), DRAWING), strict=True))
    dropped = {number for number, ask in REQUESTS.items() if number % 20 == 0 and ask.max_tokens == 24}
    ended = engine.serve(REQUESTS, DRAWING, 1)
    going = [number for number in dropped if number not in ended]
    assert len(going) >= 2
    ended |= engine.serve({}, DRAWING, 0, dropped=going)
    ended |= served(engine)
    assert ended.keys() == REQUESTS.keys() - set(going)
    assert all(ended[number].tokens == expected[number].tokens for number in ended)
    assert engine.serve({}, DRAWING, 1) == {}


@pytest.mark.slow
@NO_VLLM
def test_a_long_prompt_that_is_under_way_is_read_anew_by_who_begins_with_new_weights(tmp_path: Path) -> None:
    """vLLM caches whole blocks of a prompt, and does not drop those that a running request uses."""
    models = [tiny_policy(torch.float32, seed=seed) for seed in (0, 1)]
    for model in models:
        model.config.max_position_embeddings = 1024
    save_model_folder(models[0], word_tokenizer(), tmp_path / "policy")
    engine = VllmEngine(
        tmp_path / "policy", EngineSettings(max_sequences=6, precision="float32"), longest=512, end=END, seed=0
    )
    prompt = [3 + place % 20 for place in range(CACHE_BLOCK * 2 + 5)]
    requests = [CompletionRequest(prompt, seed, 20) for seed in range(2)]
    assert not engine.serve({0: requests[0]}, DRAWING, 1)
    hand_over(engine, models, 1)
    engine.serve({1: requests[1]}, DRAWING, 1)
    made = served(engine)
    assert made[0].versions == ((0, 0), (1, 1)) and made[1].versions == ((0, 1),)
    (expected,) = engine.complete(requests[1:], DRAWING)
    engine.close()
    assert made[1].tokens == expected.tokens
    torch.testing.assert_close(made[1].log_probs, expected.log_probs, rtol=0, atol=1e-5)
