"""Generative judges: models that read a question about completions, write a critique, and end with a verdict."""
