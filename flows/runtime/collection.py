"""When Python collects garbage: not while a command imports, which makes a million objects that all stay.

Walking them again and again took a sixth of the time until `rewardflow runs` answers. What lasts begins to collect once
it has imported; what is imported by then is left out of every later collection.
"""

from __future__ import annotations

import gc


def postpone() -> None:
    """Collect nothing until `begin`: for the start of a command, and the whole of one that only reads."""
    gc.disable()


def begin() -> None:
    """Collect from here on, but for what is there already."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
