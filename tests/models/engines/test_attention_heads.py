"""Attention heads that vLLM does not support on a CPU: `auto` takes transformers, and `vllm` is refused in one line."""

import importlib
from pathlib import Path

import pytest
import torch

from models.base.errors import UserError
from models.engines.attention_heads import CPU_SIZES, head_size
from models.engines.engine import EngineSettings, Sampling
from models.engines.open_engine import open_engine, opening
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from tests.support.tiny_models import NO_VLLM, word_tokenizer


def policy_with_heads_of(size: int, folder: Path) -> Path:
    tokenizer = word_tokenizer()
    sizes = SizeSettings(hidden=2 * size, layers=1, heads=2, key_value_heads=1, feed_forward=32, positions=32)
    save_model_folder(new_policy(sizes, tokenizer, seed=0), tokenizer, folder)
    return folder


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@NO_VLLM
@pytest.mark.slow
@pytest.mark.rotating(of=6)
def test_the_sizes_are_those_of_vllms_backend() -> None:
    backend = importlib.import_module("vllm.v1.attention.backends.cpu_attn").CPUAttentionBackend
    assert list(CPU_SIZES) == backend.get_supported_head_sizes()


@pytest.mark.parametrize("size", [16, 24, 40])
def test_where_vllm_has_no_kernel_auto_takes_the_other_engine(size: int, tmp_path: Path, on_a_cpu: None) -> None:
    folder = policy_with_heads_of(size, tmp_path / "policy")
    assert head_size(folder) == size
    engine = open_engine(folder, EngineSettings(max_sequences=4), longest=16, end=1, seed=0)
    try:
        (drawn,) = engine.generate([[3, 4]], Sampling(max_tokens=4, samples=2), seed=0)
        assert len(drawn) == 2
    finally:
        engine.close()


@NO_VLLM
def test_where_vllm_has_a_kernel_auto_takes_it(tmp_path: Path, on_a_cpu: None) -> None:
    folder = policy_with_heads_of(32, tmp_path / "policy")
    # Only vLLM has no limit on the completions of a batch.
    assert opening(folder, EngineSettings(), longest=16, end=1, seed=0).most is None


@NO_VLLM
def test_vllm_by_name_is_one_line_before_anything_starts(tmp_path: Path, on_a_cpu: None) -> None:
    folder = policy_with_heads_of(24, tmp_path / "policy")
    with pytest.raises(UserError) as caught:
        open_engine(folder, EngineSettings(name="vllm"), longest=16, end=1, seed=0)
    assert str(caught.value) == (
        "engine.name: on a CPU vLLM attends with heads of 32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512 numbers, "
        f"and those of {folder} have 24; take a size among them, or the engine transformers"
    )
