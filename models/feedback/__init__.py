"""Feedback: what is said of a completion in words, and which of its characters it is about."""
