"""Inspect your own data, and bring them in as a pinned version."""

PANEL = "Data"
