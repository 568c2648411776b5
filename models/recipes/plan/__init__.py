"""Needs of a training, found out before it starts."""
