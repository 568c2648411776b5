"""Calls of user code: it may fail its own call, but cannot change or end the run."""
