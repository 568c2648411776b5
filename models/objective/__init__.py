"""Slot 5: what the policy minimises. One file an objective, each a pure function of tensors."""
