"""The base package: errors, bounds, files, seeds, memory and the device. Every package may import it."""
