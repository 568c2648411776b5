"""What every flow does around its steps: open, lock, resume, log, notify, print."""
