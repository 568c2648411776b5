"""A context in which models are in eval mode, without dropout; afterwards they are in their former mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def in_eval_mode(*models: nn.Module) -> Iterator[None]:
    """Put `models` in eval mode inside the context, and restore the mode of every module afterwards.

    Modes are restored after an exception too. Each module is restored by itself: a model may have parts that stay in
    eval mode while the rest trains, which `model.train(True)` would change.
    """
    before = [(module, module.training) for model in models for module in model.modules()]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
