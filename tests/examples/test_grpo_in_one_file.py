"""Test of the example that writes GRPO out: its weights are those of the recipe `grpo`, bit for bit."""

import importlib.util
from contextlib import closing
from pathlib import Path

import pytest
import torch

from models.base.ranks import ALONE
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.policies.build import load_causal_model
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.train import Training, open_training
from models.training.watchers import Watchers

FILE = Path(__file__).resolve().parents[2] / "examples" / "grpo_in_one_file.py"
SPEC = importlib.util.spec_from_file_location("grpo_in_one_file", FILE)
assert SPEC is not None and SPEC.loader is not None
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


@pytest.mark.slow
@pytest.mark.rotating(of=6)
def test_the_example_ends_at_the_weights_of_the_recipe(tmp_path: Path) -> None:
    data = example.make_data(tmp_path)
    start = example.make_start(data, tmp_path)
    weights = example.train(data, start)

    recipe = load_recipe("grpo", list(example.RECIPE))
    training = Training.of(recipe, start, example.prompts_of(data, start), tmp_path / "run")
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=Codec(load_tokenizer(start)).end)
    rewards: list[float] = []

    def note(number: int, metrics: dict[str, float]) -> None:
        rewards.append(metrics["reward/total"])

    with open_training(training, ALONE, lambda autocast: closing(engine)) as opened:
        opened.run(Watchers(metrics=note))
        expected = opened.learner.policy.state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    begun = load_causal_model(start, torch.float32).state_dict()
    assert any(not torch.equal(weights[name], tensor) for name, tensor in begun.items())
    assert len(rewards) == example.ROUNDS and all(0.0 < reward < 1.0 for reward in rewards), "every round has signal"
