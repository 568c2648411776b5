"""Agents: a policy in turns with an environment, tools, other seats or a program of its own."""
