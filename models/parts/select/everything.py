"""Every completion is trained on."""

from __future__ import annotations

import torch
from torch import Tensor

from models.method.registry import part
from models.method.scored import Scored
from models.method.select import Select


@part("all")
class Everything(Select):
    """All completions."""

    def __call__(self, scored: Scored) -> Tensor:
        """Return all indices, [completions]."""
        return torch.arange(len(scored.rollouts))
