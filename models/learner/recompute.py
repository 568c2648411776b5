"""Gradient checkpointing: a layer keeps only its input and is computed again for its backward pass.

After Chen et al. 2016 (arXiv 1604.06174): about a third more arithmetic for a small part of the memory. The gradient is
the same to the bit if kernels are deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from models.base.errors import UserError
from models.learner.log_probs import plain_inner


def can_recompute(model: nn.Module) -> bool:
    """Return whether transformers supports gradient checkpointing for the model."""
    return bool(plain_inner(model).supports_gradient_checkpointing and layers_of(model))


@contextmanager
def recomputing(model: nn.Module, on: bool = True) -> Iterator[None]:
    """Enable gradient checkpointing for `model` inside the context; with `on` false nothing changes.

    Raises:
        UserError: transformers does not support it for the model.
    """
    if not on:
        yield
        return
    if not can_recompute(model):
        name = type(plain_inner(model)).__name__
        raise UserError(f"schedule.gradient_checkpointing: {name} knows no gradient checkpointing; set it to false")
    inner = plain_inner(model)
    inner.gradient_checkpointing_enable({"use_reentrant": False})
    layers = layers_of(model)
    before = [layer.training for layer in layers]
    for layer in layers:
        layer.training = True  # a layer requires it; its submodules, dropout too, keep their mode
    try:
        yield
    finally:
        for layer, trained in zip(layers, before, strict=True):
            layer.training = trained
        inner.gradient_checkpointing_disable()


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model that gradient checkpointing computes again, one by one."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in plain_inner(model).modules() if isinstance(module, GradientCheckpointingLayer)]
