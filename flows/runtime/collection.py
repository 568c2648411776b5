"""Switch for Python's garbage collection, which is off during a command's imports so that it starts faster.

The imports make a million objects, all of which stay. Walking them repeatedly took a sixth of the time until
`rewardflow runs` answers. Long-running commands turn collection on after their imports; the objects that exist by
then are left out of every later collection.
"""

from __future__ import annotations

import gc


def postpone() -> None:
    """Turn garbage collection off until `begin`: during a command's start, or all of a command that only reads."""
    gc.disable()


def begin() -> None:
    """Turn garbage collection on; objects that exist already are excluded from it."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
