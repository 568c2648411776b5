"""The vLLM engine, compared with transformers and with the learner; most tests share one engine."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from models.engines import vllm_engine
from models.engines.canary import canary_gap
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.engines.vllm_engine import VllmEngine
from models.policies.build import LoraSettings, with_adapter
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from tests.support.tiny_models import (
    GREEDY,
    NO_VLLM,
    PROMPTS,
    SEQUENCES,
    contents,
    plain_log_probs,
    tiny_policy,
    word_tokenizer,
)

pytestmark = [pytest.mark.slow, NO_VLLM, pytest.mark.rotating(of=8)]
END = 1
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("vllm") / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), target)
    return target


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine(folder, EngineSettings(max_sequences=64, precision="float32"), longest=64, end=END, seed=0)
    yield engine
    engine.close()


@pytest.fixture
def engine(running: VllmEngine) -> VllmEngine:
    running.load(tiny_policy(torch.float32).state_dict().items())
    return running


def test_greedy_completions_are_those_of_transformers(engine: VllmEngine, folder: Path) -> None:
    other = TransformersEngine(folder, EngineSettings(precision="float32"), end=END)
    ours, theirs = engine.generate(PROMPTS, GREEDY, 0), other.generate(PROMPTS, GREEDY, 0)
    assert [row[0].tokens for row in ours] == [row[0].tokens for row in theirs]
    for first, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(first[0].log_probs, two[0].log_probs, rtol=0, atol=1e-5)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU vLLM starts as it does by itself")
def test_on_a_cpu_the_start_spawns_no_process_and_compiles_nothing(engine: VllmEngine) -> None:
    from vllm.model_executor.models import ModelRegistry

    engine.generate(PROMPTS, GREEDY, 0)
    sampler: Any = import_module("vllm.v1.sample.sampler")
    known: Any = ModelRegistry.models["Qwen3ForCausalLM"]
    assert known.inspect_model_cls() == known.interfaces, "the class is imported here, so it is not inspected elsewhere"
    assert not hasattr(sampler.batched_count_greater_than, "_torchdynamo_orig_callable")


def test_an_engine_starts_in_a_process_that_has_imported_flask(folder: Path) -> None:
    program = f"""
from pathlib import Path
import flask, mlflow.server
from models.engines.engine import EngineSettings
from models.engines.vllm_engine import VllmEngine
settings = EngineSettings(max_sequences=2, precision="float32")
VllmEngine(Path({str(folder)!r}), settings, longest=16, end=1, seed=0).close()
"""
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]


def test_torch_still_takes_a_number_of_threads_after_the_start(engine: VllmEngine) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_scores_agree_with_transformers_to_1e_5(engine: VllmEngine, folder: Path) -> None:
    other = TransformersEngine(folder, EngineSettings(precision="float32"), end=END)
    ours = engine.score(SEQUENCES.prompts, SEQUENCES.completions)
    theirs = other.score(SEQUENCES.prompts, SEQUENCES.completions)
    for first, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(torch.tensor(first), torch.tensor(two), rtol=0, atol=1e-5)


def test_both_engines_stop_at_the_same_ends_whatever_the_folder_names(
    engine: VllmEngine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder names only END. A token from inside the greedy completions is a second end, or the only one."""
    free = [row[0].tokens for row in engine.generate(PROMPTS, GREEDY, 0)]
    other_end = next(token for tokens in free for token in tokens[1:-1] if token != END)
    for ends in ((END, other_end), (other_end,)):
        monkeypatch.setattr(engine, "ends", ends)
        ours = [row[0] for row in engine.generate(PROMPTS, GREEDY, 0)]
        theirs = [
            row[0]
            for row in TransformersEngine(folder, EngineSettings(precision="float32"), end=ends).generate(
                PROMPTS, GREEDY, 0
            )
        ]
        assert [(our.tokens, our.finished) for our in ours] == [(their.tokens, their.finished) for their in theirs]
        assert any(our.tokens[-1] == other_end and our.finished for our in ours)


def test_greedy_is_the_learners_argmax(engine: VllmEngine) -> None:
    model = tiny_policy(torch.float32)
    for prompt, (generated,) in zip(PROMPTS, engine.generate(PROMPTS, GREEDY, 0), strict=True):
        logits = model(torch.tensor([[*prompt, *generated.tokens]])).logits[0]
        assert tuple(logits[len(prompt) - 1 : -1].argmax(-1).tolist()) == generated.tokens


def test_a_seed_is_a_completion_and_another_seed_another(engine: VllmEngine) -> None:
    sampling = Sampling(max_tokens=8, samples=4)
    first = engine.generate(PROMPTS, sampling, seed=1)
    torch.rand(7)
    again, other = (contents(engine.generate(PROMPTS, sampling, seed=seed)) for seed in (1, 2))
    assert again == contents(first) != other


def test_what_vllm_says_of_a_token_is_held_to_the_last_bit(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    said, plain = [], vllm_engine._generated

    def heard(completion: Any) -> Any:
        said.append(list(completion.logprobs.logprobs))
        return plain(completion)

    monkeypatch.setattr(vllm_engine, "_generated", heard)
    groups = engine.generate(PROMPTS, Sampling(max_tokens=8, samples=4, temperature=0.7), seed=3)
    held = [completion.log_probs for group in groups for completion in group if completion.log_probs is not None]
    assert all(row.dtype == torch.float32 and not row.is_inference() for row in held)
    assert [row.double().tolist() for row in held] == said and any(value != 0 for row in said for value in row)


def test_after_a_hand_over_the_engine_runs_the_learners_policy_and_no_other(engine: VllmEngine) -> None:
    stale, moved = tiny_policy(torch.float32), tiny_policy(torch.float32, seed=1)
    assert canary_gap(engine, stale, SEQUENCES, None) < 1e-5
    assert canary_gap(engine, moved, SEQUENCES, None) > 0.5
    engine.load(merged_weights(moved))
    assert canary_gap(engine, moved, SEQUENCES, None) < 1e-5
    assert canary_gap(engine, stale, SEQUENCES, None) > 0.5
    exact = torch.cat(plain_log_probs(tiny_policy(seed=1), SEQUENCES)).float()
    said = torch.tensor([value for row in engine.score(SEQUENCES.prompts, SEQUENCES.completions) for value in row])
    torch.testing.assert_close(said, exact, rtol=0, atol=1e-4)


def test_a_changed_adapter_reaches_the_engine_merged(engine: VllmEngine) -> None:
    adapted = with_adapter(tiny_policy(torch.float32), LoraSettings(rank=4), seed=0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.5)
    assert canary_gap(engine, adapted, SEQUENCES, None) > 0.1
    engine.load(merged_weights(adapted))
    assert canary_gap(engine, adapted, SEQUENCES, None) < 1e-4


def test_top_k_and_top_p_leave_only_the_likeliest(engine: VllmEngine) -> None:
    model = tiny_policy(torch.float32)
    for shape in ({"top_k": 2}, {"top_p": 0.3}):
        groups = engine.generate(PROMPTS, Sampling(max_tokens=1, samples=32, **shape), seed=0)
        for prompt, group in zip(PROMPTS, groups, strict=True):
            probability, order = model(torch.tensor([prompt])).logits[0, -1].softmax(0).sort(descending=True)
            allowed = 2 if "top_k" in shape else int(((probability.cumsum(0) - probability) < 0.3).sum())
            assert {generated.tokens[0] for generated in group} <= set(order[:allowed].tolist())


def test_more_prompt_tokens_than_one_step_takes_are_no_trouble_for_seeded_samples(folder: Path) -> None:
    prompts = [[3 + (number + place) % 9 for place in range(50)] for number in range(200)]
    engine = VllmEngine(folder, EngineSettings(max_sequences=256, precision="float32"), longest=64, end=END, seed=0)
    try:
        assert sum(map(len, prompts)) > 8192
        made = engine.generate(prompts, Sampling(max_tokens=4, samples=1), seed=3)
        assert len(made) == 200 and all(group[0].tokens for group in made)
    finally:
        engine.close()


def test_no_prompts_give_no_completions(engine: VllmEngine) -> None:
    assert engine.generate([], Sampling(), 0) == [] and engine.score([], []) == []


def test_what_is_set_aside_for_keys_and_values_is_what_the_blocks_need_between_its_bounds() -> None:
    from models.engines.vllm_engine import CACHE_LEAST, CACHE_MOST, cache_bytes

    config = tiny_policy().config  # keys and values of 2 layers with 1 head of 32 numbers; 128 tokens in a block
    assert cache_bytes(config, 8192, torch.bfloat16) == 8192 * 128 * 2 * 2 * 32 * 2
    assert cache_bytes(config, 1, torch.bfloat16) == CACHE_LEAST
    assert cache_bytes(config, 1_000_000, torch.float32) == CACHE_MOST


FIRST_IMPORT = """
import gc, weakref
from models.engines.vllm_engine import load_vllm, prepare_environment

class Learner:
    "What stands in memory while the engine is made."

def train():
    learner = Learner()
    prepare_environment()
    load_vllm()
    return weakref.ref(learner)

learner = train()
gc.unfreeze()
gc.collect()
assert learner() is None
"""


@pytest.mark.thorough
def test_what_stood_in_memory_when_vllm_was_first_imported_does_not_stay_for_ever() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_IMPORT], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-500:]
