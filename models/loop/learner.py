"""What moves while the loop runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from models.learner.fused_log_probs import Distribution


@dataclass
class Learner:
    """What moves while the loop runs: the policy, its optimiser, and the reference it is held against."""

    policy: nn.Module
    optimiser: torch.optim.Optimizer
    reference: nn.Module | None
    """A copy of the policy; None where there is no reference or where it is the policy without its adapter."""
    adapter_off: Callable[[], AbstractContextManager[object]] | None
    """For LoRA: context in which the policy is its own reference."""
    autocast: torch.dtype | None
    distribution: Distribution
    """Temperature, top-p and top-k of the completions; log-probs mean the same distribution."""
    updates: int = 0
    """Optimiser steps taken so far."""
