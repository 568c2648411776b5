"""Number of threads for a policy's matrix products on a CPU: one for a small policy, otherwise one per core.

The products of a small model take microseconds. Threads that share one wait for each other longer than they compute:
measured with 0.6M weights on two cores, the second thread made vLLM's decoding no faster and an update 1.4 times as
fast, for 1.4 times the processor time. On a machine with other work, two threads took up to seven times the processor
time of one, because a thread that waits for another one spins.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from models.base.device import has_gpu
from models.policies.build import PolicySettings, SizeSettings

SMALL_POLICY = 1_000_000
"""Weights below which a policy computes on one thread."""
CHOSEN_BY_USER = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that take precedence over this module."""


def set_threads(policy: PolicySettings) -> None:
    """Set one thread for this process if `policy` is small, the machine has no GPU and the user set no number."""
    if has_gpu() or any(name in os.environ for name in CHOSEN_BY_USER):
        return
    weights = weights_of(policy)
    if weights is not None and weights < SMALL_POLICY:
        torch.set_num_threads(1)


def weights_of(policy: PolicySettings) -> int | None:
    """Estimate a policy's number of weights from its size or its base's files (4 bytes each); None without files."""
    if policy.base is None:
        return weights_of_size(policy.size, policy.tokenizer.vocabulary)
    base = Path(policy.named_base or "")
    files = list(base.glob("*.safetensors")) if base.is_dir() else []
    return sum(file.stat().st_size for file in files) // 4 if files else None


def weights_of_size(size: SizeSettings, vocabulary: int) -> int:
    """Return the number of weights in a new policy's matrices; norms, which are a thousandth of them, are left out."""
    attention = 2 * size.hidden * size.head_width * (size.heads + size.key_value_heads)
    return size.hidden * vocabulary + size.layers * (attention + 3 * size.hidden * size.feed_forward)
