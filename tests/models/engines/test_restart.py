"""Restarts of real engines that fail during a call: the new engine has the last weights and repeats the call."""

import functools
import gc
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling, requests_of
from models.engines.open_engine import open_engine
from models.engines.restart import RESTARTS, Restarting
from models.policies.folder import save_model_folder
from tests.support.tiny_models import NO_VLLM, PROMPTS, SEQUENCES, contents, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

MODELS = {
    "transformers": ("transformers.models.qwen3.modeling_qwen3", "Qwen3Model"),
    "vllm": ("vllm.model_executor.models.qwen3", "Qwen3ForCausalLM"),
}
SAMPLING = Sampling(max_tokens=12, samples=3)
END = 1


@pytest.fixture(scope="module", params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.thorough])])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Restarting]]:
    folder = tmp_path_factory.mktemp("restart") / "policy"
    save_model_folder(tiny_policy(torch.float32, seed=7), word_tokenizer(), folder)
    engine = open_engine(
        folder, EngineSettings(name=request.param, max_sequences=64, precision="float32"), longest=64, end=END, seed=0
    )
    assert isinstance(engine, Restarting)
    yield request.param, engine
    engine.close()


@pytest.fixture
def engine(running: tuple[str, Restarting]) -> Restarting:
    running[1].load(tiny_policy(torch.float32).state_dict().items())
    return running[1]


@pytest.fixture
def break_at(running: tuple[str, Restarting], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that makes the model's forward pass raise at the given calls, counted from then on."""
    module, name = MODELS[running[0]]
    model = getattr(importlib.import_module(module), name)
    whole = model.forward
    calls: list[None] = []

    def arrange(error: BaseException, *numbers: int) -> list[Any]:
        calls.clear()

        @functools.wraps(whole)  # transformers reads the signature
        def forward(self: nn.Module, *arguments: Any, **named: Any) -> Any:
            calls.append(None)
            if len(calls) in numbers:
                raise type(error)(*error.args)  # a new error each time: an error keeps the frames that it passed
            return whole(self, *arguments, **named)

        monkeypatch.setattr(model, "forward", forward)
        return calls

    return arrange


def test_completions_after_a_break_in_mid_generation_are_bit_for_bit_those_of_an_undisturbed_run(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    undisturbed = engine.generate(PROMPTS, SAMPLING, seed=5)
    before = engine.restarts
    break_at(RuntimeError("the kernel died"), 4)
    with pytest.warns(UserWarning, match=r"engine: it broke in generate \(RuntimeError: the kernel died\)"):
        assert contents(engine.generate(PROMPTS, SAMPLING, seed=5)) == contents(undisturbed)
    assert engine.restarts == before + 1


def test_what_is_served_when_an_engine_breaks_is_begun_anew_and_each_ends_once(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    """The new engine has the weights of the last hand-over, as the versions of its tokens show."""
    requests = dict(enumerate(requests_of(PROMPTS, SAMPLING, 5)))
    ended = [engine.serve(requests, SAMPLING, 2)]
    engine.load(tiny_policy(torch.float32, seed=1).state_dict().items(), 1)
    break_at(RuntimeError("the kernel died"), 2)
    with pytest.warns(UserWarning, match=r"engine: it broke in serve \(RuntimeError: the kernel died\)"):
        while engine.under_way:
            ended.append(engine.serve({}, SAMPLING, 3))
    assert sorted(number for some in ended for number in some) == sorted(requests)
    assert all(made.versions == ((0, 0),) for made in ended[0].values())
    anew = {number: made for some in ended[1:] for number, made in some.items()}
    assert anew and all(made.versions == ((0, 1),) for made in anew.values())
    undisturbed = engine.complete(list(requests.values()), SAMPLING)
    assert [made.tokens for made in anew.values()] == [undisturbed[number].tokens for number in anew]
    assert not engine.under_way


def test_a_broken_engine_is_gone_from_memory_before_the_next_one_works(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    first = weakref.ref(engine.engine)
    break_at(RuntimeError("the kernel died"), 3)
    with pytest.warns(UserWarning, match="restart"):
        engine.generate(PROMPTS, SAMPLING, seed=5)
    gc.collect()
    assert first() is None


def test_a_restarted_engine_has_the_weights_of_the_hand_over_and_not_what_the_learner_made_of_them_since(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    learner = tiny_policy(torch.float32, seed=1)
    engine.load(learner.state_dict().items())
    expected = engine.score(SEQUENCES.prompts, SEQUENCES.completions)
    with torch.no_grad():
        learner.model.embed_tokens.weight.zero_()
    break_at(RuntimeError("the kernel died"), 1)
    with pytest.warns(UserWarning, match="it broke in score"):
        assert engine.score(SEQUENCES.prompts, SEQUENCES.completions) == expected


def test_an_engine_that_breaks_every_time_is_one_clear_line(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    calls = break_at(RuntimeError("the kernel died\nand more"), *range(100))
    with pytest.warns(UserWarning), pytest.raises(UserError) as caught:
        engine.generate(PROMPTS, SAMPLING, seed=5)
    assert str(caught.value) == "engine: it broke 3 times in one generate (RuntimeError: the kernel died)"
    assert len(calls) == RESTARTS + 1


@pytest.mark.thorough
def test_memory_that_is_full_and_an_interruption_start_nothing_anew_and_leave_nothing_behind(
    engine: Restarting, break_at: Callable[..., list[Any]]
) -> None:
    undisturbed = engine.generate(PROMPTS, SAMPLING, seed=5)
    before = engine.restarts
    break_at(torch.OutOfMemoryError("tried to allocate 20 GiB"), 2)
    with pytest.raises(UserError, match=r"engine: out of memory in generate .*lower engine.max_sequences"):
        engine.generate(PROMPTS, SAMPLING, seed=5)
    break_at(KeyboardInterrupt(), 2)
    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS, SAMPLING, seed=5)
    assert engine.restarts == before
    assert contents(engine.generate(PROMPTS, SAMPLING, seed=5)) == contents(undisturbed)


def test_bad_input_starts_nothing_anew(engine: Restarting) -> None:
    before = engine.restarts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match="token id 99"):
            engine.generate([[3], [99]], SAMPLING, seed=0)
    assert engine.restarts == before


def test_a_call_to_an_engine_that_was_closed_starts_none(running: tuple[str, Restarting]) -> None:
    started: list[None] = []

    def start() -> Any:
        started.append(None)
        assert running[1].engine is not None
        return running[1].engine

    engine = Restarting(start, torch.float32)
    engine.engine = None  # the engine of the fixture stays open
    engine.close()
    with pytest.raises(RuntimeError, match=r"^engine: it was closed$"):
        engine.generate(PROMPTS, SAMPLING, seed=5)
    assert len(started) == 1
