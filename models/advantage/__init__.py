"""Slot 4: how much better than expected. One file an advantage."""
