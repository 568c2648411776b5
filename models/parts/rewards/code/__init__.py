"""Rewards of programs, tests and queries, which run in the sandbox."""
