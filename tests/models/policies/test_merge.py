"""Merges: values computed by hand from the papers, limiting cases, and models that are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from models.base.errors import UserError
from models.policies.folder import hash_folder, save_model_folder
from models.policies.merge import (
    METHODS,
    MergeMethod,
    MergeSettings,
    disjoint_mean,
    merge_states,
    merge_tensors,
    trimmed,
    weighted_mean,
)
from models.policies.merged_folder import StoredTensors, check_mergeable, write_merged
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from tests.support.tiny_gguf import tiny_model
from tests.support.tiny_models import tiny_policy, word_tokenizer

BASE = torch.tensor([1.0, 1.0, 1.0, 1.0])
A = torch.tensor([3.0, 0.0, 1.5, 1.0])  # differences 2, -1, 0.5, 0
B = torch.tensor([2.0, 4.0, 0.0, 1.25])  # differences 1, 3, -1, 0.25


def merged(method: MergeMethod, weights: tuple[float, ...], tensors: list[torch.Tensor], **more: float) -> list[float]:
    settings = MergeSettings(method=method, weights=weights, **more)
    values: list[float] = merge_tensors(settings, tensors, BASE).tolist()
    return values


def test_linear_is_the_weighted_mean() -> None:
    assert merged("linear", (1, 1), [A, B]) == [2.5, 2.0, 0.75, 1.125]
    assert merged("linear", (3, 1), [A, B]) == [2.75, 1.0, 1.125, 1.0625]  # (3 a + b) / 4
    assert merged("linear", (1, 1, 2), [A, B, BASE]) == [1.75, 1.5, 0.875, 1.0625]


def test_task_arithmetic_adds_the_differences_from_the_base() -> None:
    assert merged("task_arithmetic", (1, 1), [A, B]) == [4.0, 3.0, 0.5, 1.25]
    assert merged("task_arithmetic", (0.5, 0.25), [A, B]) == [2.25, 1.25, 1.0, 1.0625]
    assert merged("task_arithmetic", (1, 1), [A, B], scale=0.5) == [2.5, 2.0, 0.75, 1.125]
    assert merged("task_arithmetic", (-1,), [A]) == [-1.0, 2.0, 0.5, 1.0]  # forgets a


def test_ties_trims_elects_a_sign_and_averages_what_agrees() -> None:
    # Trim to half: [2, -1, 0, 0] and [0, 3, -1, 0]; B's 1 and -1 are equally large, and both stay: [1, 3, -1, 0].
    # Signs of the sums [3, 2, -1, 0]: +, +, -, none. Means of what agrees: (2 + 1) / 2, 3, -1, and 0.
    assert merged("ties", (1, 1), [A, B], density=0.5) == [2.5, 4.0, 0.0, 1.0]
    # Weight 4 of A elects its sign for the second value: 4 * -1 + 3 < 0. The mean of the first: (4 * 2 + 1) / 5.
    assert merged("ties", (4, 1), [A, B], density=0.5) == pytest.approx([2.8, 0.0, 0.0, 1.0])
    assert merged("ties", (1, 1), [A, B], density=0.5, scale=2.0) == [4.0, 7.0, -1.0, 1.0]


def test_trim_keeps_the_largest_values_of_a_tensor_rounded_up() -> None:
    difference = torch.tensor([[0.1, -5.0, 2.0], [-0.5, 0.0, 3.0]]).double()
    assert trimmed(difference, 0.2).tolist() == [[0, -5, 0], [0, 0, 3]]  # 1.2 of 6 values
    assert trimmed(difference, 0.5).tolist() == [[0, -5, 2], [0, 0, 3]]
    assert torch.equal(trimmed(difference, 1.0), difference)


def test_where_signs_are_in_balance_the_base_stays_and_zeros_do_not_count_in_a_mean() -> None:
    first, other = torch.tensor([2.0, 4.0, 0.0]).double(), torch.tensor([-2.0, 0.0, 0.0]).double()
    assert disjoint_mean([first, other], (1, 1)).tolist() == [0.0, 4.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_weight_one_and_zero_give_the_first_model_to_the_bit(method: MergeMethod, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    base, first, second = (torch.randn(50, 40).to(dtype) for _ in range(3))
    settings = MergeSettings(method=method, weights=(1.0, 0.0))
    result = merge_tensors(settings, [first, second], base)
    assert result.dtype is dtype and torch.equal(result, first)
    assert torch.equal(merge_tensors(MergeSettings(method=method, weights=(0.0, 1.0)), [first, second], base), second)


def test_with_density_one_and_signs_that_agree_ties_is_the_mean_of_the_differences() -> None:
    torch.manual_seed(0)
    base, sign = torch.randn(300), torch.randn(300).sign()
    models = [base + sign * torch.rand(300) for _ in range(3)]
    result = merge_tensors(MergeSettings(method="ties", weights=(1, 1, 1)), models, base)
    expected = base.double() + torch.stack([model.double() - base.double() for model in models]).mean(0)
    torch.testing.assert_close(result, expected.float(), rtol=0, atol=1e-7)
    torch.testing.assert_close(result, weighted_mean(models, (1, 1, 1)).float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_equal_models_stay_as_they_are(method: MergeMethod) -> None:
    torch.manual_seed(0)
    base, model = torch.randn(500), torch.randn(500)
    weights = (0.2, 0.3, 0.5)
    settings = MergeSettings(method=method, weights=weights)
    assert torch.allclose(merge_tensors(settings, [model] * 3, base), model, rtol=1e-6)
    assert torch.equal(merge_tensors(MergeSettings(method="linear", weights=weights), [model] * 3, None), model)


def test_whole_numbers_stay_if_they_are_equal_and_names_and_shapes_must_be() -> None:
    settings = MergeSettings(method="linear", weights=(1, 1))
    state = {"w": torch.ones(2), "n": torch.arange(3)}
    assert dict(merge_states(settings, [state, state], None))["n"].tolist() == [0, 1, 2]
    for other, line in [
        ({**state, "n": torch.arange(3) + 1}, "whole numbers that differ"),
        ({**state, "w": torch.ones(3)}, r"w has different shapes: \(2,\), \(3,\)"),
        ({"w": torch.ones(2)}, "the states differ in n"),
    ]:
        with pytest.raises(ValueError, match=line):
            list(merge_states(settings, [state, other], None))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"method": "linear", "weights": (0.0, 0.0)}, "linear needs weights of at least 0, one of them above 0"),
        ({"method": "ties", "weights": (1.0, -1.0)}, "ties needs weights of at least 0"),
        ({"method": "linear", "weights": (1.0,), "density": 0.5}, "only ties has a density"),
        ({"method": "ties", "weights": (1.0,), "density": 0.0}, "--density: 0 is not above 0 and at most 1"),
        ({"method": "linear", "weights": (1.0,), "scale": 2.0}, "linear has no difference from a base to scale"),
        ({"method": "ties", "weights": (float("nan"),)}, "is not a finite number"),
    ],
)
def test_numbers_that_mean_no_merge_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError, match=line):
        MergeSettings(**settings)


# ---------------------------------------------------------------------------------------------------- model folders


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make the folders of two policies and of their base."""
    folders = [tmp_path_factory.mktemp("merge") / name for name in ("a", "b", "base")]
    for seed, folder in enumerate(folders):
        save_model_folder(tiny_policy(torch.float32, seed), word_tokenizer(), folder)
        (folder / "LICENSE").write_text(f"licence {seed % 2}")
    return folders


@pytest.mark.parametrize("method", METHODS)
def test_a_merged_folder_loads_with_the_merged_weights(method: MergeMethod, trio: list[Path], tmp_path: Path) -> None:
    first, second, base = trio
    settings = MergeSettings(method=method, weights=(0.75, 0.5))
    names: list[str] = []
    digest = write_merged(
        [first, second], base if settings.needs_base else None, settings, tmp_path / "m", names.append
    )
    assert digest == hash_folder(tmp_path / "m")
    states = [load_file(folder / "model.safetensors") for folder in trio]
    expected = dict(merge_states(settings, states[:2], states[2] if settings.needs_base else None))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "m").state_dict()
    assert names == list(expected) and all(torch.equal(loaded[name], value) for name, value in expected.items())
    assert not torch.equal(loaded[names[0]], states[0][names[0]])
    assert (tmp_path / "m" / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    assert (tmp_path / "m" / "LICENSE.2").read_text() == "licence 1"


def test_shards_and_types_of_the_first_model_are_read_and_the_result_is_one_file_of_its_types(tmp_path: Path) -> None:
    model = tiny_model("qwen3", tied=False)
    tokenizer = train_tokenizer(["a b"], TokenizerSettings(vocabulary=290))
    model.to(torch.bfloat16).save_pretrained(tmp_path / "a", max_shard_size="50KB")
    tokenizer.save_pretrained(tmp_path / "a")
    save_model_folder(tiny_model("qwen3", tied=False), tokenizer, tmp_path / "b")
    assert len(list((tmp_path / "a").glob("*.safetensors"))) > 1
    write_merged([tmp_path / "a", tmp_path / "b"], None, MergeSettings(method="linear", weights=(1, 0)), tmp_path / "m")
    assert [file.name for file in (tmp_path / "m").glob("*.safetensors*")] == ["model.safetensors"]
    stored = load_file(tmp_path / "m" / "model.safetensors")
    original = StoredTensors(tmp_path / "a")
    assert stored.keys() == original.keys()
    assert all(weight.dtype is torch.bfloat16 and torch.equal(weight, original[k]) for k, weight in stored.items())


def other_tokenizer(folder: Path) -> None:
    train_tokenizer(["7 8 9 x y"], TokenizerSettings(kind="words", vocabulary=24)).save_pretrained(folder)


def other_rope(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 5.0
    (folder / "config.json").write_text(json.dumps(config))


def other_vocabulary(folder: Path) -> None:
    save_model_folder(tiny_policy(torch.float32, vocabulary=32), word_tokenizer(), folder)


def without_a_weight(folder: Path) -> None:
    from safetensors.torch import save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors")


def another_shape(folder: Path) -> None:
    from safetensors.torch import save_file

    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] = torch.ones(65)
    save_file(weights, folder / "model.safetensors")


def gated(folder: Path) -> None:
    (folder / "use.json").write_text(json.dumps({"gated": True}))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (other_tokenizer, "its tokenizer differs from that of"),
        (other_rope, "rope_parameters is"),
        (other_vocabulary, "vocab_size is 32, but 24 in"),
        (without_a_weight, "model.norm.weight is a weight that"),
        (another_shape, "model.norm.weight is 65, but 64 in"),
        (gated, "its use.json differs from that of"),
    ],
)
def test_another_architecture_shape_or_vocabulary_is_refused_in_one_line_and_nothing_is_written(
    change: Callable[[Path], None], line: str, trio: list[Path], tmp_path: Path
) -> None:
    other = Path(shutil.copytree(trio[1], tmp_path / "other"))
    change(other)
    with pytest.raises(UserError, match=line):
        check_mergeable([trio[0], other])
    with pytest.raises(UserError, match=line):
        write_merged([trio[0], other], None, MergeSettings(method="linear", weights=(1, 1)), tmp_path / "m")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


def test_values_that_overflow_are_refused(trio: list[Path], tmp_path: Path) -> None:
    settings = MergeSettings(method="task_arithmetic", weights=(1e39, 1e39))
    with pytest.raises(UserError, match="has values that are not finite; use smaller weights"):
        write_merged(trio[:2], trio[2], settings, tmp_path / "m")
    assert not list(tmp_path.iterdir())
