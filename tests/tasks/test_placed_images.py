"""Engines in other processes read the images of the prompts that they are sent."""

from pathlib import Path

import pytest
import torch

from models.base.placement import PlacementSettings
from models.engines.engine import EngineSettings, Sampling
from models.engines.hosted import Order
from models.engines.open_engine import open_engine
from models.policies.folder import save_model_folder
from tests.support.tiny_models import contents
from tests.support.tiny_vision import rows_about_scenes, tiny_vision_policy

ray = pytest.importorskip("ray", reason="the extra cluster is not installed")
from tasks.compute.cluster import connected, placed_fleet  # noqa: E402 - imports ray

PLAIN = EngineSettings(name="transformers", max_sequences=4)
SAMPLING = Sampling(max_tokens=12, samples=4, temperature=1.5)


@pytest.mark.thorough
def test_a_placed_engine_gets_the_images_of_prompts(tmp_path: Path) -> None:
    model, codec = tiny_vision_policy(torch.float32)
    save_model_folder(model, codec.tokenizer, tmp_path / "policy")
    prompts = codec.prompts([text for text, _ in rows_about_scenes(pictures=3, each=2)])
    alone = open_engine(tmp_path / "policy", PLAIN, longest=64, end=1, seed=0)
    with connected(None) as cluster:
        fleet = placed_fleet(
            cluster, PlacementSettings(engines=2), Order(tmp_path / "policy", PLAIN, 64, 1, torch.float32, False)
        )
        assert contents(fleet.generate(prompts, SAMPLING, 5)) == contents(alone.generate(prompts, SAMPLING, 5))
        scores, expected = (engine.score(prompts, [[5, 6]] * 6) for engine in (fleet, alone))
        assert all(row == pytest.approx(other, abs=1e-5) for row, other in zip(scores, expected, strict=True))
        (again,) = codec.prompts([rows_about_scenes(pictures=1, each=1, seed=9)[0][0]])
        assert contents(fleet.generate([again], SAMPLING, 5)) == contents(alone.generate([again], SAMPLING, 5))
        fleet.close()
    alone.close()
