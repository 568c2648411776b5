"""The device that the learner, and an engine in the same process, run on."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)


def device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def has_gpu() -> bool:
    """Return whether the device is a GPU, for defaults that depend on it; before calls of CUDA, check `torch.cuda`."""
    return device().type != "cpu"


def on_device(model: Model) -> Model:
    """Move `model` to the device, in place."""
    nn.Module.to(model, device())
    return model
