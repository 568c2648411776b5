"""Rewards that reshape others: by length, form, rank, weight or label."""
