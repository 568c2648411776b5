"""Environments: what answers a policy's turns with text and rewards."""
