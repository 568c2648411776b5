"""Garbage collection is off while a command imports, because the imports make a million objects that all stay.

Walking them repeatedly took a sixth of the time until `rewardflow runs` answers. Long-running commands turn collection
on after their imports; the objects that exist by then are left out of every later collection.
"""

from __future__ import annotations

import gc


def postpone() -> None:
    """Turn garbage collection off until `begin`: for a command's start, or for all of a command that only reads."""
    gc.disable()


def begin() -> None:
    """Turn garbage collection on, without the objects that exist already."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
