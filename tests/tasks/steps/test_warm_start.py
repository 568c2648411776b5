"""Weights that the warm start trains: all weights of a new policy, only the adapters of a given one if it has any."""

import pytest
import torch

from models.datasets.schema import arrow_schema, file_name, write_rows
from models.policies.build import LoraSettings, PolicySettings, SizeSettings, with_adapter
from models.policies.folder import save_model_folder
from tasks.steps.warm_start import adapter_of, begin
from tests.support.tiny_models import tiny_policy, word_tokenizer

SIZE = SizeSettings(hidden=16, layers=1, heads=2, key_value_heads=1, feed_forward=16, positions=32)


@pytest.fixture
def data(tmp_path):
    row = {
        "id": "d",
        "prompt_id": "p",
        "prompt": "1 + 2 =",
        "level": 1,
        "completion": "3",
        "answer": "3",
        "flaw": "none",
    }
    write_rows(tmp_path / file_name("demonstrations", "train"), [row], arrow_schema("demonstrations"))
    return tmp_path


def learning(policy, data):
    model, _ = begin(policy, data, 0)
    adapter = adapter_of(policy)
    model = with_adapter(model, adapter, 0) if adapter else model
    return {name: parameter.requires_grad for name, parameter in model.named_parameters()}


def test_a_new_policy_is_fitted_whole_also_where_the_loop_will_train_adapters_on_it(data):
    plain, adapted = (learning(PolicySettings(size=SIZE, lora=lora), data) for lora in (None, LoraSettings(rank=2)))
    assert adapted == plain and all(adapted.values())


def test_a_given_policy_is_fine_tuned_by_its_adapters_alone(data):
    save_model_folder(tiny_policy(torch.float32), word_tokenizer(), data / "base")
    learner = learning(PolicySettings(base=str(data / "base"), lora=LoraSettings(rank=2)), data)
    assert any(learner.values()) and all(("lora_" in name) == learns for name, learns in learner.items())
