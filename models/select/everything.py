"""Every completion is trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from models.loop.rollout import Scored
from models.loop.slots import Select
from models.parts import part


@part("all")
class Everything(Select):
    """All completions."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return all indices, [completions]."""
        return torch.arange(len(scored.rollouts))
