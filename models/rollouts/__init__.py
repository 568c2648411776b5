"""Slot 1: where completions come from. One file for each."""
