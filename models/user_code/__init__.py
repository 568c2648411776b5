"""Calls of code that users bring: it can fail its own call, and it cannot change or end the run."""
