"""`complete`: a completion depends only on its own request, and ends at its own limit or stop token."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from models.base.errors import UserError
from models.base.seeds import completion_seed
from models.engines.engine import (
    CompletionRequest,
    Engine,
    EngineSettings,
    Generated,
    Sampling,
    TokenSampling,
    requests_of,
)
from models.engines.random_points import TOKENS, WRITERS, points_of
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import VllmEngine
from models.policies.folder import save_model_folder
from tests.support.tiny_models import NO_VLLM, PROMPTS, contents, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

END = 1
DRAWING = TokenSampling(temperature=1.5)
STOP = 7
REQUESTS = [
    CompletionRequest(prompt, completion_seed(5, place, number), room, stops)
    for place, prompt in enumerate(PROMPTS)
    for number, (room, stops) in enumerate(
        [(12, ()), (3, ()), (1, ()), (20, (STOP,)), (20, (STOP, 3))][: 2 + place % 4]
    )
]
"""Two to five requests for each prompt. The prompts differ in length, the requests in their limits and stop tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("each") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture(scope="module", params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.slow])])
def engine(request: pytest.FixtureRequest, folder: Path) -> Engine:
    if request.param == "vllm":
        made = VllmEngine(folder, EngineSettings(max_sequences=64, precision="float32"), longest=64, end=END, seed=0)
        request.addfinalizer(made.close)
        return made
    return TransformersEngine(folder, EngineSettings(precision="float32"), end=END)


def agree(completions: Sequence[Generated], others: Sequence[Generated]) -> None:
    """Check that tokens are equal and log-probs almost: the order of their sums depends on the batch."""
    for made, other in zip(completions, others, strict=True):
        assert (made.tokens, made.finished) == (other.tokens, other.finished)
        torch.testing.assert_close(made.log_probs, other.log_probs, rtol=0, atol=1e-5)


def test_a_completion_hangs_on_its_ask_alone(engine: Engine) -> None:
    """Order and batches change no token, so a fleet of engines gives the same tokens as one engine."""
    whole = engine.complete(REQUESTS, DRAWING)
    assert len({made.tokens for made in whole}) > len(REQUESTS) * 0.8
    agree(engine.complete(REQUESTS[::-1], DRAWING)[::-1], whole)
    agree([*engine.complete(REQUESTS[:5], DRAWING), *engine.complete(REQUESTS[5:], DRAWING)], whole)
    agree([engine.complete([ask], DRAWING)[0] for ask in REQUESTS], whole)
    assert contents(engine.complete(REQUESTS, DRAWING)) == contents(whole)


def test_how_many_run_at_once_changes_no_completion(folder: Path) -> None:
    whole = TransformersEngine(folder, EngineSettings(precision="float32"), end=END).complete(REQUESTS, DRAWING)
    for most in (1, 2, 3, 7):
        narrow = TransformersEngine(folder, EngineSettings(max_sequences=most, precision="float32"), end=END)
        agree(narrow.complete(REQUESTS, DRAWING), whole)


def test_each_completion_ends_where_its_own_ask_says(engine: Engine) -> None:
    requests = [
        CompletionRequest(prompt, completion_seed(1, place, number), room, stops)
        for place, prompt in enumerate(PROMPTS)
        for number, (room, stops) in enumerate(product((1, 2, 6, 30), ((), (STOP,), (STOP, 3, 4))))
    ]
    endings = set()
    for ask, made in zip(requests, engine.complete(requests, DRAWING), strict=True):
        ends = {END, *ask.stops}
        assert 1 <= len(made.tokens) <= ask.max_tokens and not ends & set(made.tokens[:-1])
        assert made.finished == (made.tokens[-1] in ends) and (made.finished or len(made.tokens) == ask.max_tokens)
        assert made.log_probs is not None
        assert len(made.log_probs) == len(made.tokens)
        endings.add(made.tokens[-1] if made.finished else None)
    assert endings == {None, END, STOP, 3, 4}


def test_a_completion_with_less_room_is_the_beginning_of_the_one_with_more(engine: Engine) -> None:
    long, short = ([CompletionRequest(prompt, 9, room) for prompt in PROMPTS] for room in (24, 5))
    for made, beginning in zip(engine.complete(long, DRAWING), engine.complete(short, DRAWING), strict=True):
        assert beginning.tokens == made.tokens[:5]
        assert beginning.finished == (made.finished and len(made.tokens) <= 5)


def test_a_batch_is_its_asks_and_draws_by_no_other_random_number(engine: Engine) -> None:
    sampling = Sampling(max_tokens=8, samples=3)
    groups = engine.generate(PROMPTS, sampling, 4)
    torch.rand(7)
    before = torch.get_rng_state()
    made = engine.complete(requests_of(PROMPTS, sampling, 4), sampling)
    if isinstance(engine, TransformersEngine):  # vLLM draws numbers that it does not use
        assert torch.equal(torch.get_rng_state(), before)
    assert contents([completion for group in groups for completion in group]) == contents(made)
    assert [len(group) for group in groups] == [3] * len(PROMPTS)


def test_a_prompt_that_cannot_be_is_named_by_its_place_among_the_prompts(engine: Engine) -> None:
    with pytest.raises(UserError, match=r"^prompt 2 holds token id 99"):
        engine.generate([[3], [4], [5, 99]], Sampling(max_tokens=2, samples=3), 0)


def test_an_ask_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens must be at least 1, not 0"):
        CompletionRequest([3], 0, 0)


def test_points_are_philoxs_and_hang_on_seed_stream_and_place_alone() -> None:
    requests = [CompletionRequest([3], seed, room) for seed, room in ((0, 4), (1, 2), (2**63 - 1, 4))]
    points = points_of(requests, 6, TOKENS)
    for row, ask in zip(points, requests, strict=True):
        # ten rounds of Philox 4x64 at counter 1 give four numbers of 64 bits; their upper 53 bits are used
        raw = np.random.Philox(counter=0, key=np.array([ask.seed, 0], dtype=np.uint64)).random_raw(4)
        assert row[: ask.max_tokens].tolist() == [(int(value) >> 11) / 2**53 for value in raw[: ask.max_tokens]]
        assert not row[ask.max_tokens :].any()
    assert points[0, :2].tolist() == [0.011546754286331562, 0.24154919656271812]  # the same on every machine
    assert not torch.isin(points[points > 0], points_of(requests, 6, WRITERS)).any()


def test_points_are_uniform_and_those_of_near_seeds_have_nothing_to_do_with_one_another() -> None:
    points = points_of([CompletionRequest([3], seed, 64) for seed in range(2000)], 64, TOKENS)
    assert float((points.mean() - 0.5).abs()) < 4 / (12 * points.numel()) ** 0.5
    shares = torch.histc(points.flatten(), 16, 0, 1) / points.numel()
    assert float((shares - 1 / 16).abs().max()) < 4 * (1 / 16 / points.numel()) ** 0.5
    for first, second in ((points[:-1], points[1:]), (points[:, :-1], points[:, 1:])):
        pair = torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))
        assert float(pair[0, 1].abs()) < 4 / first.numel() ** 0.5


def test_no_two_completions_of_a_run_share_a_seed() -> None:
    seeds = {
        completion_seed(seed, prompt, number) for seed in range(50) for prompt in range(64) for number in range(16)
    }
    assert len(seeds) == 50 * 64 * 16 and all(0 <= seed < 2**63 for seed in seeds)
    assert completion_seed(1, 23, 4) != completion_seed(12, 3, 4)
