"""An unchanged policy takes over the weight files of its base, with the same values and the same size."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.policies.base_models.source import RECORD
from models.policies.build import open_policy
from models.policies.folder import given_folder, save_model_folder
from models.policies.untouched import holds_weights_of, save_with_weights_of
from models.policies.update_sparsity import changed_share_of_files
from tests.support.tiny_models import tiny_policy, word_tokenizer

pytest.importorskip("gguf", reason="gguf is not installed, which writes the tests' GGUF files")
from tests.support.tiny_gguf import tiny_model, write_gguf


@pytest.mark.parametrize("tied", [True, False])
def test_a_stored_base_is_not_copied_and_loads_to_the_same_bits(
    tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    base = given_folder(str(write_gguf(tmp_path / "a.gguf", tiny_model("llama", tied), "llama", "Q4_1")))
    assert base is not None
    model, tokenizer = open_policy(base)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert holds_weights_of(base, model)
    save_with_weights_of(base, model, tokenizer, tmp_path / "home" / "policy")
    made = tmp_path / "home" / "policy"
    assert (made / "model.safetensors").samefile(base / "model.safetensors")
    assert (made / RECORD).read_text() == (base / RECORD).read_text()
    again, _ = open_policy(made)
    assert all(torch.equal(weight, before[name]) for name, weight in again.state_dict().items())
    assert {weight.dtype for weight in again.parameters()} == {torch.float32}


def test_a_folder_of_the_user_is_copied_in_its_own_type(tmp_path: Path) -> None:
    base, made = tmp_path / "base", tmp_path / "made"
    save_model_folder(tiny_policy(torch.bfloat16), word_tokenizer(), base)
    model, tokenizer = open_policy(base)
    save_with_weights_of(base, model, tokenizer, made)
    assert not (made / "model.safetensors").samefile(base / "model.safetensors")
    assert (made / "model.safetensors").read_bytes() == (base / "model.safetensors").read_bytes()
    assert open_policy(made)[0].config.get_text_config().model_type == "qwen3"


def test_weights_under_other_names_or_of_several_types_are_not_taken_over(tmp_path: Path) -> None:
    base = tmp_path / "base"
    save_model_folder(tiny_policy(torch.bfloat16), word_tokenizer(), base)
    model, _ = open_policy(base)
    assert holds_weights_of(base, model)
    weights = load_file(base / "model.safetensors")
    for name, changed in [
        ("one more", weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}),
        ("mixed", weights | {"model.norm.weight": weights["model.norm.weight"].float()}),
    ]:
        other = Path(shutil.copytree(base, tmp_path / name))
        save_file(changed, other / "model.safetensors", metadata={"format": "pt"})
        assert not holds_weights_of(other, model)


def test_a_small_change_counts_though_the_base_is_in_bfloat16(tmp_path: Path) -> None:
    base, after = tmp_path / "base", tmp_path / "after"
    save_model_folder(tiny_policy(torch.bfloat16), word_tokenizer(), base)
    model, tokenizer = open_policy(base)
    with torch.no_grad():
        model.model.norm.weight.mul_(1 + 2.0**-8 + 2.0**-12)  # between two neighbouring numbers of bfloat16
    save_model_folder(model, tokenizer, after)
    assert changed_share_of_files(base, after, tolerance=2.0**-8) > 0
