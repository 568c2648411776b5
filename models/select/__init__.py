"""Slot 3: which completions the policy is trained on. One file for each."""
