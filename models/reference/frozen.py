"""The reference stays what the policy was when reinforcement learning began."""

from __future__ import annotations

from models.loop.slots import Reference
from models.parts import part


@part("frozen")
class Frozen(Reference):
    """The warm-started policy, unchanged."""


@part("none")
class NoReference(Reference):
    """No reference is kept; objectives see `reference = None`."""

    kept = False
