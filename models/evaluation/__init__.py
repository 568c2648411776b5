"""Evaluation of a policy against the truth and against other policies, and the gate that decides on its promotion."""
