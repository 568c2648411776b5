"""Slot 1: the source of completions. One file per source."""
