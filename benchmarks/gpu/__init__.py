"""Measurements on a GPU."""
