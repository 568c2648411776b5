"""Merging of models with the same architecture: averages of weights, task arithmetic and TIES.

    linear            weighted mean of the weights: model soups (Wortsman et al. 2022, arXiv 2203.05482)
    task_arithmetic   base + scale * sum of weight * (model - base) (Ilharco et al. 2022, arXiv 2212.04089)
    ties              trim each difference from the base, elect a sign for each value, and average the differences that
                      have it (Yadav et al. 2023, arXiv 2306.01708)

All functions take one tensor of each model, or the states of the models, which are read tensor by tensor. They compute
in float64, so that a model that is merged with weight 1 alone comes out unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from models.base.errors import UserError

MergeMethod = Literal["linear", "task_arithmetic", "ties"]
METHODS: tuple[MergeMethod, ...] = get_args(MergeMethod)
State = Mapping[str, Tensor]
"""Tensors of a model by name."""


@dataclass(frozen=True, kw_only=True)
class MergeSettings:
    """Method of a merge and its numbers. Raises a UserError if they do not fit together."""

    method: MergeMethod
    weights: tuple[float, ...]
    """Weight of each model. Those of `linear` and `ties` are divided by their sum where they are used."""
    density: float = 1.0
    """Share of the values of each tensor's difference that TIES keeps: the largest ones."""
    scale: float = 1.0
    """Factor of the merged difference from the base."""

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (*self.weights, self.density, self.scale)):
            raise UserError("a weight, the density or the scale of a merge is not a finite number")
        if self.method != "task_arithmetic" and (min(self.weights) < 0 or sum(self.weights) <= 0):
            raise UserError(f"--weight: {self.method} needs weights of at least 0, one of them above 0")
        if self.method != "ties" and self.density != 1:
            raise UserError(f"--density: {self.method} keeps every value; only ties has a density")
        if not 0 < self.density <= 1:
            raise UserError(f"--density: {self.density:g} is not above 0 and at most 1")
        if self.method == "linear" and self.scale != 1:
            raise UserError("--scale: linear has no difference from a base to scale")

    @property
    def needs_base(self) -> bool:
        """Whether the method merges differences from a base."""
        return self.method != "linear"

    def __str__(self) -> str:
        words = [self.method, "weights " + " ".join(f"{weight:g}" for weight in self.weights)]
        words += [f"density {self.density:g}"] if self.method == "ties" else []
        return ", ".join(words + ([f"scale {self.scale:g}"] if self.scale != 1 else []))


def merge_states(settings: MergeSettings, states: Sequence[State], base: State | None) -> Iterator[tuple[str, Tensor]]:
    """Yield the merged tensors by name, in the order of the first state and in its data types.

    Args:
        settings: the method, with one weight for each state.
        states: models with tensors of the same names and shapes; each tensor is read once.
        base: the model that the others were trained from, for methods that need it.

    Raises:
        ValueError: names or shapes differ, the number of weights does, or a tensor of whole numbers does.
    """
    everything = [*states, *([base] if base is not None else [])]
    if len(states) != len(settings.weights) or (settings.needs_base and base is None):
        raise ValueError("one weight for each state is needed, and a base for differences")
    for state in everything:
        if state.keys() != states[0].keys():
            raise ValueError(f"the states differ in {sorted(state.keys() ^ states[0].keys())[0]}")
    for name in states[0]:
        tensors = [state[name] for state in states]
        origin = base[name] if base is not None else None
        given = [*tensors, *([origin] if origin is not None else [])]
        if len({tensor.shape for tensor in given}) > 1:
            raise ValueError(f"{name} has different shapes: {', '.join(str(tuple(tensor.shape)) for tensor in given)}")
        yield name, merge_tensors(settings, tensors, origin)


def merge_tensors(settings: MergeSettings, tensors: Sequence[Tensor], base: Tensor | None) -> Tensor:
    """Merge one tensor of each model. Return it in the shape and data type of the first.

    Args:
        settings: see `merge_states`.
        tensors: the tensor in each model, all of one shape.
        base: the same in the base, for methods that need it.

    Raises:
        ValueError: whole numbers or truth values that differ between the models.
    """
    first = tensors[0]
    if not first.is_floating_point():
        if not all(torch.equal(first, other) for other in tensors[1:]):
            raise ValueError("tensors of whole numbers that differ cannot be merged")
        return first
    if settings.method == "linear":
        return weighted_mean(tensors, settings.weights).to(first.dtype)
    assert base is not None, "merge_states checks it"
    origin = base.double()
    differences = [tensor.double() - origin for tensor in tensors]
    if settings.method == "task_arithmetic":
        merged = _weighted_sum(differences, settings.weights)
    else:
        merged = disjoint_mean([trimmed(it, settings.density) for it in differences], settings.weights)
    return (origin + settings.scale * merged).to(first.dtype)


def weighted_mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the mean with the given weights, divided by their sum; float64, in the shape of the tensors."""
    used = [(tensor, weight / sum(weights)) for tensor, weight in zip(tensors, weights, strict=True) if weight]
    start = used[0][0].double()
    mean = start.clone()
    for tensor, weight in used[1:]:  # from the first, so that values that all models share stay as they are
        mean += weight * (tensor.double() - start)
    return mean


def trimmed(difference: Tensor, density: float) -> Tensor:
    """Return a difference in which all but the largest values are 0.

    Args:
        difference: a task vector, any shape.
        density: share of the values that stay, rounded up to a whole number; values as large as the smallest of them
            stay too.
    """
    number = difference.numel()
    kept = math.ceil(density * number - 1e-9)
    if kept >= number:
        return difference
    sizes = difference.abs()
    least = sizes.flatten().kthvalue(number - kept + 1).values
    return torch.where(sizes >= least, difference, 0.0)


def disjoint_mean(differences: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Return the weighted mean, value by value, of the differences that have the sign of their weighted sum.

    A value of 0 has no part in the mean. Where the sum is 0, no sign wins and the result is 0.

    Args:
        differences: trimmed task vectors, all of one shape.
        weights: one for each, at least 0.
    """
    sign = _weighted_sum(differences, weights).sign()
    total, mass = torch.zeros_like(sign), torch.zeros_like(sign)
    for difference, weight in zip(differences, weights, strict=True):
        agrees = (difference.sign() == sign) & (sign != 0)
        total += torch.where(agrees, weight * difference, 0.0)
        mass += weight * agrees.to(mass.dtype)
    return torch.where(mass > 0, total / mass.clamp(min=torch.finfo(mass.dtype).tiny), 0.0)


def _weighted_sum(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    total = torch.zeros_like(tensors[0])
    for tensor, weight in zip(tensors, weights, strict=True):
        if weight:
            total += weight * tensor
    return total
