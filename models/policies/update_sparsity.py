"""Share of the weights that learning changed, and training of a subnetwork.

After paper 62, "RL finetunes small subnetworks": reinforcement learning moves few weights, of nearly all matrices, by
updates of nearly full rank.

    share of a matrix W = |{ i, j : |W'_ij - W_ij| > tolerance * |W_ij| }| / |W|,   rank = rank of W' - W
    masked training:  gradient <- mask * gradient

Under AdamW without weight decay, a weight whose gradient is always zero keeps its value to the bit, because its moments
stay zero. A mask on the gradients is therefore enough to train a subnetwork; a mask of ones is full training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from models.base.bounds import Seed
from models.base.errors import UserError
from models.base.ranks import cut_like, own_part

COARSEST_STEP = 2.0**-9
"""Half the distance of bfloat16 neighbours, as a share of their size: smaller changes are rounded away."""


@dataclass(frozen=True)
class MatrixUpdate:
    """Change of one matrix or vector."""

    weights: int
    """Number of weights."""
    changed: int
    """Number of changed weights."""
    rank: int | None
    """Rank of the difference; None for a vector."""
    full_rank: int | None
    """Largest possible rank."""

    @property
    def share(self) -> float:
        """Share of the weights that have changed."""
        return self.changed / self.weights


@torch.no_grad()
def changed_weights(before: Mapping[str, Tensor], after: Mapping[str, Tensor], tolerance: float) -> dict[str, Tensor]:
    """Return masks of the weights that have changed, bool, by name and in the shape of each tensor.

    Args:
        before: state of the policy when learning began.
        after: its state later; the same names and shapes.
        tolerance: largest ignored change, as a share of the weight's own size; 0 counts every change.

    Raises:
        ValueError: the two states do not have the same names.
    """
    if before.keys() != after.keys():
        raise ValueError(f"the two states differ in {sorted(before.keys() ^ after.keys())}")
    return {name: (after[name] - value).abs() > tolerance * value.abs() for name, value in before.items()}


@torch.no_grad()
def update_of(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], tolerance: float = COARSEST_STEP
) -> dict[str, MatrixUpdate]:
    """Measure the change of every matrix and vector of a policy, by name; see `changed_weights`.

    The rank is that of the changes above the tolerance, by singular values in float64: expensive for large matrices.
    """
    updates = {}
    for name, changed in changed_weights(before, after, tolerance).items():
        rank = full = None
        if changed.ndim == 2:
            difference = torch.where(changed, after[name].double() - before[name].double(), 0.0)
            rank, full = int(torch.linalg.matrix_rank(difference)), min(changed.shape)
        updates[name] = MatrixUpdate(changed.numel(), int(changed.sum()), rank, full)
    return updates


@torch.no_grad()
def changed_share_of_files(before: Path, after: Path, tolerance: float = COARSEST_STEP) -> float:
    """Return the share of all weights that differ between two model folders, with one tensor in memory at a time.

    Raises:
        ValueError: the two do not hold tensors of the same names.
    """
    old, new = tensor_files(before), tensor_files(after)
    if old.keys() != new.keys():
        raise ValueError(f"the two folders differ in {sorted(old.keys() ^ new.keys())}")
    weights = changed = 0
    for name, file in old.items():
        with safe_open(file, "pt") as old_file, safe_open(new[name], "pt") as other:
            value, now = old_file.get_tensor(name), other.get_tensor(name)
            finer = torch.promote_types(value.dtype, now.dtype)  # a base in bfloat16 and a policy in float32
            moved = changed_weights({name: value.to(finer)}, {name: now.to(finer)}, tolerance)[name]
        weights, changed = weights + moved.numel(), changed + int(moved.sum())
    return changed / weights


def tensor_files(folder: Path) -> dict[str, Path]:
    """Return the file that holds each tensor of a model folder, by name."""
    files: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as held:
            files |= dict.fromkeys(held.keys(), file)
    return files


@dataclass(frozen=True, kw_only=True)
class SubnetworkSettings:
    """Weights of the policy that learn, under `policy.subnetwork:`."""

    masks: str | None = None
    """Safetensors file with a mask for each parameter, by name; True learns. None: random masks."""
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the weights of every matrix that learn, if the masks are random."""
    seed: Seed = 0
    """Seed of random masks."""


def masks_of(model: nn.Module, settings: SubnetworkSettings) -> dict[str, Tensor]:
    """Load or draw the mask of each parameter, bool, by name and in the shape of the parameter; True learns.

    Raises:
        UserError: the file cannot be read, or a mask has no parameter or another shape.
    """
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if settings.masks is None:
        chance = torch.Generator().manual_seed(settings.seed)
        return {name: torch.rand(p.shape, generator=chance) < settings.share for name, p in learning.items()}
    try:
        given = load_file(settings.masks)
    except (OSError, SafetensorError) as error:
        raise UserError(f"policy.subnetwork.masks: {settings.masks} cannot be read ({error})") from None
    for name, mask in given.items():
        if name not in learning or learning[name].shape != mask.shape:
            raise UserError(f"policy.subnetwork.masks: {settings.masks}: {name} is not a parameter of such a shape")
    return {name: mask.bool() for name, mask in given.items()}


def changed_share(updates: Mapping[str, MatrixUpdate]) -> float:
    """Return the share of all weights that have changed."""
    return sum(update.changed for update in updates.values()) / sum(update.weights for update in updates.values())


def learn_only(model: nn.Module, masks: Mapping[str, Tensor]) -> list[RemovableHandle]:
    """Restrict learning to weights whose mask is True, in place, until the returned handles are removed.

    Gradients are masked as they arise, so clipping and gradient norms see the subnetwork only. An optimiser with
    weight decay would still shrink the other weights.

    Args:
        model: the policy.
        masks: mask by parameter name, bool, in the shape of the parameters; a parameter without one learns whole.

    Raises:
        ValueError: a mask has no parameter.
    """
    parameters = dict(model.named_parameters())
    unknown = sorted(masks.keys() - parameters.keys())
    if unknown:
        raise ValueError(f"no parameter is called {unknown[0]}")
    return [_mask(parameters[name], mask) for name, mask in masks.items() if parameters[name].requires_grad]


def _mask(parameter: nn.Parameter, mask: Tensor) -> RemovableHandle:
    kept = own_part(cut_like(mask.to(parameter.device), parameter))
    # where, not a product: minus zero and non-finite values must not pass either
    if own_part(parameter) is not parameter:  # split over the ranks: autograd itself sees gradients of whole weights

        def keep(moved: Tensor) -> None:
            if moved.grad is not None:
                part = own_part(moved.grad)
                part.copy_(torch.where(kept, part, 0.0))

        after: RemovableHandle = parameter.register_post_accumulate_grad_hook(keep)  # type: ignore[no-untyped-call]
        return after
    handle: RemovableHandle = parameter.register_hook(lambda gradient: torch.where(kept, gradient, 0.0))  # type: ignore[no-untyped-call]
    return handle
