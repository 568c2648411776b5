"""Two model folders have the same weights if every bit is equal, however the weights are divided into files."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.policies.weight_gap import tensor_gaps, tensor_hashes, whole_hash

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16), "c": torch.tensor(2.0)}


def folder_of(folder: Path, *files: dict[str, torch.Tensor]) -> Path:
    folder.mkdir()
    for number, tensors in enumerate(files):
        save_file(tensors, folder / f"model-{number}.safetensors")
    return folder


def changed(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**TENSORS, name: tensor}


def test_the_same_tensors_in_other_files_are_the_same_weights(tmp_path: Path) -> None:
    old = folder_of(tmp_path / "old", TENSORS)
    new = folder_of(tmp_path / "new", {"c": TENSORS["c"], "a": TENSORS["a"]}, {"b": TENSORS["b"]})
    assert tensor_gaps(old, new) == [] and tensor_hashes(old) == tensor_hashes(new)
    assert whole_hash(tensor_hashes(old)) == whole_hash(tensor_hashes(new))


def test_one_bit_in_one_number_is_found_with_its_size(tmp_path: Path) -> None:
    old = folder_of(tmp_path / "old", TENSORS)
    last = TENSORS["a"].clone()
    last[1, 2] = math.nextafter(5.0, 6.0) if last.dtype == torch.float64 else 5.0 + 2.0**-21
    new = folder_of(tmp_path / "new", changed("a", last))
    (gap,) = tensor_gaps(old, new)
    assert (gap.name, gap.differing, gap.numbers, gap.greatest) == ("a", 1, 6, 2.0**-21)
    before, after = tensor_hashes(old), tensor_hashes(new)
    assert {name for name in before if before[name] != after[name]} == {"a"}
    assert whole_hash(before) != whole_hash(after)


@pytest.mark.parametrize(
    "tensor",
    [
        pytest.param(TENSORS["a"].reshape(3, 2), id="shape"),
        pytest.param(TENSORS["a"].double(), id="type"),
        pytest.param(
            -0.0 * TENSORS["a"] + TENSORS["a"].clone().index_fill_(0, torch.tensor([0]), -0.0), id="minus-zero"
        ),
    ],
)
def test_shape_type_and_the_sign_of_zero_count(tmp_path: Path, tensor: torch.Tensor) -> None:
    old, new = folder_of(tmp_path / "old", TENSORS), folder_of(tmp_path / "new", changed("a", tensor))
    assert [gap.name for gap in tensor_gaps(old, new)] == ["a"]
    assert tensor_hashes(old)["a"] != tensor_hashes(new)["a"]


def test_a_number_that_is_none_equals_itself(tmp_path: Path) -> None:
    broken = changed("a", torch.full((2, 3), math.nan))
    old, new = folder_of(tmp_path / "old", broken), folder_of(tmp_path / "new", broken)
    assert tensor_gaps(old, new) == [] and tensor_hashes(old) == tensor_hashes(new)


def test_what_is_missing_comes_first_then_the_greatest_gap(tmp_path: Path) -> None:
    old = folder_of(tmp_path / "old", {**TENSORS, "z": torch.zeros(2)})
    new = folder_of(tmp_path / "new", {"a": TENSORS["a"] + 1, "b": TENSORS["b"] + 8, "c": TENSORS["c"]})
    assert [gap.name for gap in tensor_gaps(old, new)] == ["z", "b", "a"]
    assert "in one of the two only" in str(tensor_gaps(old, new)[0])
