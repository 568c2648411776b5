"""The reference stays what the policy was when reinforcement learning began."""

from __future__ import annotations

from models.loop.slots import Reference
from models.parts import part


@part("frozen")
class Frozen(Reference):
    """The warm-started policy, unchanged."""

    offload: bool = False
    """Keep its weights in the processor's memory but while they are read. Changes no value; each round pays for their
    way to the GPU and saves their room there, half of the policy's own or all of it (`rewardflow plan`)."""


@part("none")
class NoReference(Reference):
    """No reference is kept; objectives see `reference = None`."""

    kept = False
