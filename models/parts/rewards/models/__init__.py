"""Rewards by the scores or probabilities of a model."""
