"""Slot 5: the loss that the policy minimises. One file an objective, each a pure function of tensors."""
