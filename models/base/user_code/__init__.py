"""Containment of calls of user code: a call may fail, but cannot change or end the run."""
