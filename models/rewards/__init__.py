"""Slot 2: what a completion is worth. One file a reward."""
