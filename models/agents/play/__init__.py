"""Episodes: a policy and an environment in turns."""
