"""The one place on the GPU, on a real Prefect server: held as long as an engine that takes its memory may be open."""

from pathlib import Path

import pytest
import torch
from running import Pair
from tiny_models import tiny_policy, word_tokenizer

from flows.schedule import create_gpu_limit
from models.engine.engine import EngineSettings
from models.policy.folder import save_model_folder
from tasks.shared_engine import engine_place, lent_engine, shared_engine

ENGINE = EngineSettings(name="transformers")
LIMITS = {"longest": 64, "end": 1}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), tmp_path / "policy")
    return tmp_path / "policy"


@pytest.mark.slow
def test_the_place_on_the_gpu_is_held_as_long_as_the_engine_may_be_open(servers: Pair, base: Path) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    def held() -> int:
        with get_client(sync_client=True) as client:
            return client.read_global_concurrency_limit_by_name("gpu").active_slots

    with temporary_settings({PREFECT_API_URL: f"{servers.prefect}/api"}):
        create_gpu_limit()
        with engine_place(), lent_engine(base, ENGINE, **LIMITS):
            assert held() == 1
        assert held() == 0
        with shared_engine():
            assert held() == 0  # nobody asked for an engine yet
            for _ in range(2):
                with engine_place(), lent_engine(base, ENGINE, **LIMITS):
                    assert held() == 1
                assert held() == 1  # the engine's memory is still taken
        assert held() == 0
