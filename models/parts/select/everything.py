"""Every completion is trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.registry import part
from models.method.rollout import Scored
from models.method.slots import Select


@part("all")
class Everything(Select):
    """All completions."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return all indices, [completions]."""
        return torch.arange(len(scored.rollouts))
