"""Common tasks of every flow around its steps: open, lock, resume, log, notify, print."""
