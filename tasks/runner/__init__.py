"""The execution of a step: its key, its cached result, its time limit, retries and interrupts."""
