"""Slot 3: the completions that the policy is trained on. One file per part."""
