"""Where the learner runs, and an engine in its process."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_gpu() -> bool:
    """Whether that is one: what suits a GPU is chosen by it. (What calls CUDA itself asks torch for CUDA.)"""
    return device().type != "cpu"


def on_device(model: Model) -> Model:
    """`model`, moved there in place."""
    nn.Module.to(model, device())
    return model
