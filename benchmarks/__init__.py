"""Speed and memory beside TRL, measured side by side. `python -m benchmarks --help`."""
