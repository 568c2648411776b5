"""An engine that several steps share: its results equal those of a new one to the bit, and it is always closed."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine
from models.engines.restart import Restarting
from models.policies.folder import save_model_folder
from tasks.compute.shared_engine import borrowed_engine, engine_place, learner_place, shared_engine
from tests.support.tiny_models import NO_VLLM, PROMPTS, contents, tiny_policy, word_tokenizer

pytestmark = pytest.mark.rotating(of=8)

END = 1
PLAIN = EngineSettings(name="transformers")
LIMITS = {"longest": 64, "end": END}
SAMPLES = Sampling(max_tokens=12, samples=6)
GREEDY = Sampling(max_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("base") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write other weights of the same architecture, and return their folder."""
    target = tmp_path_factory.mktemp("candidate") / "policy"
    save_model_folder(tiny_policy(torch.float32, seed=1), word_tokenizer(), target)
    return target


def is_closed(engine: Restarting) -> bool:
    return engine.engine is None


@pytest.mark.parametrize(
    "settings",
    [
        PLAIN,
        pytest.param(
            EngineSettings(name="vllm", max_sequences=8),
            marks=[pytest.mark.thorough, NO_VLLM],
        ),
    ],
    ids=lambda settings: settings.name,
)
def test_the_shared_engine_says_what_a_new_one_says_to_the_last_bit(
    base: Path, candidate: Path, settings: EngineSettings
) -> None:
    said = {}
    with shared_engine():
        for name, folder in (("base", base), ("candidate", candidate), ("base again", base)):
            with borrowed_engine(folder, settings, **LIMITS) as engine:
                said[name] = [engine.generate(PROMPTS, sampling, 5) for sampling in (SAMPLES, GREEDY)]
    fresh = open_engine(candidate, settings, seed=0, **LIMITS)
    try:
        alone = [fresh.generate(PROMPTS, sampling, 5) for sampling in (SAMPLES, GREEDY)]
    finally:
        fresh.close()
    assert contents(said["candidate"]) == contents(alone)
    assert contents(said["base"]) == contents(said["base again"]) != contents(said["candidate"])


def test_one_engine_serves_all_steps_and_is_closed_at_the_end(base: Path, candidate: Path) -> None:
    with shared_engine():
        with borrowed_engine(base, PLAIN, **LIMITS) as engine:
            pass
        with borrowed_engine(candidate, PLAIN, **LIMITS) as two:
            assert two is engine
    assert is_closed(engine)


def test_a_step_that_learns_behind_one_that_generates_is_lent_the_flows_place_without_its_engine(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Lock()

    @contextmanager
    def only_place() -> Iterator[None]:
        assert place.acquire(timeout=1), "the flow waits for itself"
        yield
        place.release()

    monkeypatch.setattr("tasks.compute.shared_engine.gpu_slot", only_place)
    with shared_engine():
        with learner_place():
            assert place.locked()
        assert not place.locked()  # nothing has been generated yet, so only the step held the place
        with engine_place(), borrowed_engine(base, PLAIN, **LIMITS) as engine:
            pass
        with learner_place():
            assert place.locked() and is_closed(engine)
        assert place.locked()
    assert not place.locked()


def test_where_nothing_is_shared_each_step_has_its_own_and_closes_it(base: Path) -> None:
    with borrowed_engine(base, PLAIN, **LIMITS) as engine:
        assert not is_closed(engine)
    assert is_closed(engine)
    with borrowed_engine(base, PLAIN, **LIMITS) as two:
        assert two is not engine


def test_another_configuration_or_setting_closes_the_engine_before_the_next_is_opened(
    base: Path, tmp_path: Path
) -> None:
    shutil.copytree(base, tmp_path / "other")
    config = tmp_path / "other" / "generation_config.json"
    config.write_text(config.read_text().replace('"eos_token_id": 1', '"eos_token_id": 7'))
    others = [
        (tmp_path / "other", PLAIN, LIMITS),
        (base, EngineSettings(name="transformers", max_sequences=3), LIMITS),
        (base, PLAIN, LIMITS | {"longest": 63}),
        (base, PLAIN, LIMITS | {"end": 2}),
        (base, PLAIN, LIMITS | {"dtype": torch.bfloat16}),
    ]
    with shared_engine():
        for folder, settings, limits in others:
            with borrowed_engine(base, PLAIN, **{"dtype": torch.float32} | LIMITS) as engine:
                pass
            with borrowed_engine(folder, settings, **{"dtype": torch.float32} | limits) as two:
                assert two is not engine and is_closed(engine)


def test_an_error_in_a_step_closes_the_engine_and_the_next_step_has_a_new_one(base: Path) -> None:
    with shared_engine():
        with pytest.raises(KeyboardInterrupt), borrowed_engine(base, PLAIN, **LIMITS) as engine:
            raise KeyboardInterrupt
        assert is_closed(engine)
        with borrowed_engine(base, PLAIN, **LIMITS) as two:
            assert two is not engine
    with pytest.raises(RuntimeError), shared_engine():
        with borrowed_engine(base, PLAIN, **LIMITS) as three:
            pass
        raise RuntimeError("a step that needs no engine fails")
    assert is_closed(three)


def test_broken_weights_are_one_line_and_the_engine_that_half_has_them_is_closed(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "broken")
    weights = tmp_path / "broken" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with shared_engine():
        with borrowed_engine(base, PLAIN, **LIMITS) as engine:
            pass
        with (
            pytest.raises(UserError, match="the model cannot be loaded"),
            borrowed_engine(tmp_path / "broken", PLAIN, **LIMITS),
        ):
            pass
        assert is_closed(engine)
