"""Slot 2: the rewards of a completion. One file per reward."""
