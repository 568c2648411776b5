"""Formulas that several parts share: pure functions of tensors, and settings that parts have in common."""
