"""Evaluation on tasks of other harnesses: lm-evaluation-harness and inspect-ai."""
