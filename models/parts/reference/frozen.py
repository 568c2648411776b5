"""The reference is the policy at the beginning of reinforcement learning and never changes."""

from __future__ import annotations

from models.method.reference import Reference
from models.method.registry import part


@part("frozen")
class Frozen(Reference):
    """The warm-started policy, unchanged."""

    offload: bool = False
    """Whether its weights are kept in CPU memory except while they are read. Changes no value. Each round pays for
    their transfer to the GPU and saves memory there, half of the policy's own or all of it (`rewardflow plan`)."""


@part("none")
class NoReference(Reference):
    """No reference is kept; objectives see `reference = None`."""

    kept = False
