"""Unsuitable tokenizers, invalid ids and untrusted model code: each is refused in one line before anything runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.errors import UserError
from models.engines.engine import Engine, EngineSettings, Sampling, check_ids
from models.engines.open_engine import open_engine
from models.policies.folder import save_model_folder
from tests.support.tiny_models import NO_VLLM, SEQUENCES, tiny_policy, word_tokenizer

END = 1
OWN_CONFIG = """
from transformers import Qwen3Config
class OwnConfig(Qwen3Config):
    model_type = "own_qwen3"
"""
OWN_MODEL = """
from transformers import Qwen3ForCausalLM
from .configuration_own import OwnConfig
class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig
"""


@pytest.fixture(params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.thorough])])
def settings(request: pytest.FixtureRequest) -> EngineSettings:
    return EngineSettings(name=request.param, max_sequences=8, precision="float32")


def start(folder: Path, settings: EngineSettings, **named: Any) -> Engine:
    return open_engine(folder, settings, longest=16, end=END, seed=0, **named)


def test_a_tokenizer_with_more_tokens_than_the_model_has_embeddings(settings: EngineSettings, tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, vocabulary=20), word_tokenizer(), tmp_path / "policy")
    with pytest.raises(UserError) as caught:
        start(tmp_path / "policy", settings)
    assert str(caught.value) == f"{tmp_path}/policy: its tokenizer has 24 tokens but the model has 20 embeddings"


def test_a_prompt_that_the_engine_cannot_take(settings: EngineSettings, tmp_path: Path) -> None:
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), tmp_path / "policy")
    engine = start(tmp_path / "policy", settings)
    try:
        for wrong in ([[3], [4, 24]], [[-1]]):
            with pytest.raises(UserError, match=r"prompt \d holds token id \S+, but the model's vocabulary ends at 23"):
                engine.generate(wrong, Sampling(max_tokens=2), seed=0)
        with pytest.raises(UserError, match="prompt 0 holds token id 24"):
            engine.score([[3]], [[24]])
        with pytest.raises(UserError, match="prompt 1 is empty"):
            engine.generate([[3], []], Sampling(max_tokens=2), seed=0)
        assert len(engine.generate([[3]], Sampling(max_tokens=2), seed=0)) == 1
    finally:
        engine.close()


def test_a_prompt_that_leaves_no_room_for_a_token() -> None:
    with pytest.raises(UserError, match="prompt 0 has 16 tokens; with one to generate the engine holds 15 at most"):
        check_ids([[3] * 16], vocabulary=24, longest=16)
    check_ids([[3] * 15, [23]], vocabulary=24, longest=16)


def test_code_of_the_models_own_is_run_only_where_it_is_trusted(settings: EngineSettings, tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), folder)
    (folder / "configuration_own.py").write_text(OWN_CONFIG)
    (folder / "modeling_own.py").write_text(OWN_MODEL)
    config = json.loads((folder / "config.json").read_text())
    named = {"AutoConfig": "configuration_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own_qwen3", "auto_map": named}))
    with pytest.raises(UserError, match="trust_remote_code"):
        start(folder, settings)
    engine = start(folder, settings, trust_remote_code=True)
    try:
        assert len(engine.score(SEQUENCES.prompts, SEQUENCES.completions)) == len(SEQUENCES)
    finally:
        engine.close()
