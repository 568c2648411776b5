"""Rewards of episodes: success, turns, cost and conduct."""
