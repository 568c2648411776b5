"""Environments of other ecosystems, which run in a process of another interpreter or behind an address."""
