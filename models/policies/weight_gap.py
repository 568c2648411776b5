"""Bitwise comparison of the weights of two model folders: the tensors that differ, and by how much."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from models.policies.update_sparsity import tensor_files


@dataclass(frozen=True)
class TensorGap:
    """A tensor that differs between two folders."""

    name: str
    greatest: float = float("nan")
    """Greatest absolute difference of two numbers; NaN if they cannot be compared, or one is NaN."""
    differing: int = 0
    """Number of values whose bits differ."""
    numbers: int = 0
    problem: str = ""
    """Why the values cannot be compared; empty if they were."""

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        return f"{self.name}: {self.differing:,} of {self.numbers:,} numbers, by at most {self.greatest:.3g}"


@torch.no_grad()
def tensor_hashes(folder: Path) -> dict[str, str]:
    """Return name -> SHA-256 over type, shape and bytes of every tensor of a model folder, one in memory at a time."""
    hashes = {}
    for name, file in sorted(tensor_files(folder).items()):
        with safe_open(file, "pt") as tensors:
            tensor = tensors.get_tensor(name)
        total = hashlib.sha256(f"{_kind(tensor)}\0".encode())
        total.update(_bytes(tensor).numpy().tobytes())
        hashes[name] = total.hexdigest()
    return hashes


def whole_hash(hashes: Mapping[str, str]) -> str:
    """Return one SHA-256 over the names and hashes of tensors, which does not depend on the split into files."""
    return hashlib.sha256("".join(f"{name}\0{hashes[name]}\n" for name in sorted(hashes)).encode()).hexdigest()


@torch.no_grad()
def tensor_gaps(before: Path, after: Path) -> list[TensorGap]:
    """Return the tensors that differ between two model folders, one pair in memory at a time; greatest gap first.

    The split into files does not count. Bits are compared: NaN equals itself, -0 differs from 0.
    """
    old, new = tensor_files(before), tensor_files(after)
    gaps = [TensorGap(name, problem="in one of the two only") for name in sorted(old.keys() ^ new.keys())]
    for name in sorted(old.keys() & new.keys()):
        with safe_open(old[name], "pt") as older, safe_open(new[name], "pt") as newer:
            gap = _gap(name, older.get_tensor(name), newer.get_tensor(name))
        if gap is not None:
            gaps.append(gap)
    return sorted(gaps, key=lambda gap: (not gap.problem, -gap.greatest if gap.greatest == gap.greatest else 0.0))


def _gap(name: str, old: torch.Tensor, new: torch.Tensor) -> TensorGap | None:
    if old.dtype != new.dtype or old.shape != new.shape:
        return TensorGap(name, problem=f"{_kind(old)} and {_kind(new)}")
    numbers = old.numel()
    if not numbers:
        return None
    differing = int((_bytes(old).view(numbers, -1) != _bytes(new).view(numbers, -1)).any(dim=1).sum())
    if not differing:
        return None
    return TensorGap(name, float((new.double() - old.double()).abs().max()), differing, numbers)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)
