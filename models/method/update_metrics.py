"""Metrics of optimiser steps, summed on the device, so that no micro-batch waits for a transfer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from models.base.ranks import Ranks


@dataclass
class UpdateMetrics:
    """Sums of metrics over all micro-batches, so that their means do not depend on how a step is split into these."""

    sums: dict[str, Tensor] = field(default_factory=dict)
    """Sums by name, scalars, float64."""
    counts: dict[str, int] = field(default_factory=dict)
    """Number of values in each sum; a sum without a count is averaged over optimiser steps."""
    steps: list[float] = field(default_factory=list)
    """Gradient norm of each optimiser step."""
    skipped: int = 0
    """Steps that were skipped; they add nothing to the other fields."""

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Add metrics with one value per token, completion, pair or group, [values] each."""
        for name, value in values.items():
            self._raise(name, value.detach().double().sum(), value.numel())

    def add_loss(self, loss: Tensor) -> None:
        """Add a micro-batch's part of the loss of its optimiser step, a scalar."""
        self._raise("loss", loss.detach().double(), 0)

    @property
    def loss(self) -> Tensor | None:
        """Sum of the losses so far, a scalar; None before the first."""
        return self.sums.get("loss")

    def take_in(self, step: UpdateMetrics) -> None:
        """Add the metrics of another step."""
        for name, value in step.sums.items():
            self._raise(name, value, step.counts.get(name, 0))
        self.steps += step.steps
        self.skipped += step.skipped

    def over(self, ranks: Ranks) -> UpdateMetrics:
        """Return one step's sums and counts, added over all ranks; steps are not added: all ranks take the same."""
        if ranks.count == 1:
            return self
        place = next(iter(self.sums.values())).device if self.sums else None
        sums = ranks.sums({name: float(value) for name, value in self.sums.items()})
        counts = ranks.sums(self.counts)
        return UpdateMetrics(
            {name: torch.tensor(value, dtype=torch.float64, device=place) for name, value in sums.items()},
            {name: int(count) for name, count in counts.items()},
            self.steps,
            self.skipped,
        )

    def means(self) -> dict[str, float]:
        """Compute the mean of each metric, loss and gradient norm per step, with one transfer from the device."""
        steps = max(1, len(self.steps))
        sums = torch.stack(list(self.sums.values())).tolist() if self.sums else []
        means = {name: value / (self.counts.get(name) or steps) for name, value in zip(self.sums, sums, strict=True)}
        return {**means, "gradient_norm": sum(self.steps) / steps}

    def _raise(self, name: str, value: Tensor, count: int) -> None:
        before = self.sums.get(name)
        self.sums[name] = value if before is None else before + value
        if count:
            self.counts[name] = self.counts.get(name, 0) + count
