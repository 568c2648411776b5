"""The learned reward: a Bradley-Terry model on the policy's architecture, its fit, and measures of its reliability."""
