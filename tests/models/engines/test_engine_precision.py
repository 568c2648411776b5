"""Engine precision: by default the learner's; a bfloat16 engine rounds float32 master weights that it receives."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from models.base.device import has_gpu
from models.engines.canary import TOLERANCE, canary_gap
from models.engines.engine import Engine, EngineSettings, engine_dtype
from models.engines.open_engine import open_engine
from models.policies.folder import save_model_folder
from tests.support.tiny_models import NO_VLLM, SEQUENCES, tiny_policy, word_tokenizer

END = 1


@pytest.fixture(params=["transformers", pytest.param("vllm", marks=[NO_VLLM, pytest.mark.thorough])])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Return a function that opens an engine on a policy drawn from a seed."""
    opened = []

    def engine(seed: int, dtype: torch.dtype | None, **settings: Any) -> Engine:
        folder = tmp_path / f"policy{seed}"
        save_model_folder(tiny_policy(torch.float32, seed=seed, spread=3.0), word_tokenizer(), folder)
        named = EngineSettings(name=request.param, max_sequences=64, **settings)
        opened.append(open_engine(folder, named, longest=64, end=END, seed=0, dtype=dtype))
        return opened[-1]

    yield engine
    for item in opened:
        item.close()


def test_an_engine_in_bfloat16_that_took_float32_weights_scores_as_one_that_began_with_them(
    start: Callable[..., Engine],
) -> None:
    took = start(0, torch.bfloat16)
    master = tiny_policy(torch.float32, seed=1, spread=3.0)
    took.load(master.state_dict().items())
    scores = took.score(SEQUENCES.prompts, SEQUENCES.completions)
    assert canary_gap(took, master, SEQUENCES, torch.bfloat16) <= TOLERANCE[torch.bfloat16]
    assert canary_gap(took, tiny_policy(torch.float32, spread=3.0), SEQUENCES, torch.bfloat16) > 0.5
    took.close()
    assert start(1, torch.bfloat16).score(SEQUENCES.prompts, SEQUENCES.completions) == scores


def test_the_recipes_precision_wins_over_the_learners(start: Callable[..., Engine]) -> None:
    exact = start(0, torch.bfloat16, precision="float32")
    policy = tiny_policy(torch.float32, spread=3.0)
    assert canary_gap(exact, policy, SEQUENCES, None) < 1e-4
    exact.close()
    rounded = start(0, None, precision="bfloat16")
    assert 1e-4 < canary_gap(rounded, policy, SEQUENCES, None) <= TOLERANCE[torch.bfloat16]


def test_auto_follows_the_learner_and_without_one_the_device() -> None:
    auto = EngineSettings()
    assert engine_dtype(auto, torch.float32) == torch.float32 and engine_dtype(auto, torch.bfloat16) == torch.bfloat16
    assert engine_dtype(auto, None) == (torch.bfloat16 if has_gpu() else torch.float32)
    assert engine_dtype(EngineSettings(precision="float32"), torch.bfloat16) == torch.float32
