"""Rewards by a judge that reads and writes text."""
