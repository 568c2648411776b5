"""Plan of a training before it starts: its parameters and memory, and whether it fits the device."""
