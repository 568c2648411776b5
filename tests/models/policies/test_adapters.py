"""Low-rank adapters: the policy without its adapter, learning, merged weights, and the saved folder."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.method.learner import Learner
from models.method.readings import Readings
from models.policies.build import LoraSettings, open_policy, with_adapter
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights, plain_model
from tests.support.tiny_models import SEQUENCES, plain_log_probs, scored, tiny_policy, word_tokenizer


def adapted_policy(dtype: torch.dtype = torch.float32, moved: bool = True) -> Any:
    policy = with_adapter(tiny_policy(dtype), LoraSettings(rank=4, alpha=8), seed=0)
    torch.manual_seed(5)
    if moved:
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(std=0.3)
    return policy.eval()


def log_probs(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return completion_log_probs(model, SEQUENCES)[0]


def test_a_new_adapter_changes_nothing() -> None:
    assert torch.equal(log_probs(adapted_policy(moved=False)), log_probs(tiny_policy(torch.float32)))


def test_with_the_adapter_off_the_policy_is_its_own_reference_exactly() -> None:
    policy = adapted_policy()
    optimiser = build_optimiser(policy, OptimiserSettings())
    learner = Learner(policy, optimiser, None, policy.disable_adapter, None, MODEL_DISTRIBUTION)
    chosen = scored([0.0] * len(SEQUENCES), [2, 3], sequences=SEQUENCES).rollouts
    rows = Readings(learner, 16384).reference(chosen)
    assert rows is not None
    reference = torch.cat(rows)
    plain = Learner(policy, optimiser, tiny_policy(torch.float32), None, None, MODEL_DISTRIBUTION)
    of_plain = Readings(plain, 16384).reference(chosen)
    assert of_plain is not None and torch.equal(reference, torch.cat(of_plain))
    assert (log_probs(policy) - reference).abs().max() > 0.1  # the adapter is on again


def test_only_the_adapter_learns() -> None:
    learning = {name for name, parameter in adapted_policy().named_parameters() if parameter.requires_grad}
    assert learning and all("lora_" in name for name in learning)


def test_the_learner_sees_the_adapter_as_the_definition_does() -> None:
    policy = adapted_policy(torch.float64)
    expected = torch.cat(plain_log_probs(policy, SEQUENCES)).detach()
    torch.testing.assert_close(log_probs(policy), expected, rtol=1e-10, atol=1e-10)


def test_merged_weights_are_the_adapted_model_to_1e_5_and_leave_it_as_it_was() -> None:
    policy, plain = adapted_policy(), tiny_policy(torch.float32, seed=3)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    plain.load_state_dict(dict(merged_weights(policy)), strict=True)
    torch.testing.assert_close(log_probs(plain), log_probs(policy), rtol=0, atol=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_a_merge_of_two_by_two_by_hand() -> None:
    model = tiny_policy(torch.float64)
    policy: Any = with_adapter(model, LoraSettings(rank=2, alpha=4, targets=("q_proj",)), seed=0)
    base = tiny_policy(torch.float64).model.layers[0].self_attn.q_proj.weight
    layer = policy.get_base_model().model.layers[0].self_attn.q_proj
    with torch.no_grad():
        layer.lora_B["default"].weight.normal_()
    expected = base + 2.0 * layer.lora_B["default"].weight @ layer.lora_A["default"].weight  # alpha / rank = 2
    weight = dict(merged_weights(policy))["model.layers.0.self_attn.q_proj.weight"]
    torch.testing.assert_close(weight.double(), expected.double(), rtol=1e-6, atol=1e-7)


def test_the_saved_folder_loads_anywhere_and_equals_the_adapted_model(tmp_path: Path) -> None:
    policy = adapted_policy()
    expected = log_probs(policy)
    save_model_folder(plain_model(policy), word_tokenizer(), tmp_path / "policy")
    loaded, tokenizer = open_policy(tmp_path / "policy")
    torch.testing.assert_close(log_probs(loaded.eval()), expected, rtol=0, atol=1e-5)
    assert len(tokenizer) == 24
    engine = TransformersEngine(tmp_path / "policy", EngineSettings(precision="float32"), end=1)
    said = torch.tensor([value for row in engine.score(SEQUENCES.prompts, SEQUENCES.completions) for value in row])
    torch.testing.assert_close(said, expected.cpu(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_seed_decides_the_adapter(seed: int) -> None:
    first, two = (with_adapter(tiny_policy(torch.float32), LoraSettings(rank=4), seed) for _ in range(2))
    other = with_adapter(tiny_policy(torch.float32), LoraSettings(rank=4), seed + 1)
    key = next(name for name in first.state_dict() if "lora_A" in name)
    assert torch.equal(first.state_dict()[key], two.state_dict()[key])
    assert not torch.equal(first.state_dict()[key], other.state_dict()[key])
