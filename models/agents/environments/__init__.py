"""Environments, which answer a policy's turns with text and rewards."""
