"""Feedback: comments on a completion in words, and the characters that they refer to."""
