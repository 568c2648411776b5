"""Registered models: their files, export, reproduction and differences."""
