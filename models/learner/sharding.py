"""Sharding of a model over the ranks (FSDP2), so that each rank holds a part of every weight, gradient and moment.

A layer is gathered only while it is read. After Zhao et al. 2023 (arXiv 2304.11277).

Gradients are added up over the ranks in the weights' own precision and never averaged: a loss's weights are those of
the whole batch already, whichever rank reads its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn

from models.base.ranks import Ranks
from models.learner.log_probs import plain_inner, use_packed_attention
from models.learner.recompute import layers_of
from models.learner.whole_weights import METHOD, register_sharded


def shard(model: nn.Module, ranks: Ranks, optimiser: torch.optim.Optimizer | None = None) -> None:
    """Shard `model` over the ranks, in place; with one rank nothing changes.

    A head that reads the states of another model stays whole: it learns the same on every rank.

    Args:
        model: a causal language model with or without adapters, a sequence classifier, or a module around a `backbone`
            with further weights of its own; the same on every rank, on the CPU or on the rank's device.
        ranks: those that hold the parts.
        optimiser: optimiser of its weights, without state; from now on it updates the parts.

    Raises:
        UserError: the model cannot read packed rows.
    """
    from transformers import PreTrainedModel

    backbone: Any = getattr(model, "backbone", model)
    inner = plain_inner(backbone)
    if ranks.count == 1 or not isinstance(inner, PreTrainedModel):
        return
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method

    root: Any = model if backbone is not model else inner
    use_packed_attention(backbone)  # tried while the weights are whole
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (ranks.count,))
    for layer in layers_of(backbone):
        fully_shard(layer, mesh=mesh)
    fully_shard(root, mesh=mesh, reshard_after_forward=True)
    setattr(root, METHOD, MethodType(_read, root))
    register_fsdp_forward_method(root, METHOD)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no reduction that divides
    register_sharded({model, backbone, inner, root}, root, ranks)
    if optimiser is not None:
        parts = dict(model.named_parameters())
        for group in optimiser.param_groups:
            group["params"] = [parts[names[id(parameter)]] for parameter in group["params"]]


def _read(root: nn.Module, read: Callable[[], Any]) -> Any:
    """Call `read` as a method of the model, so that the hooks around it gather its weights inside the call."""
    return read()
