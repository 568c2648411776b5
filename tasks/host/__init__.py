"""The machine, environment, clock and code version of a process."""
