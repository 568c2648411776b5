"""Rewards by rules: verifiers of answers, calls and forms."""
