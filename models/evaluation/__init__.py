"""How good a policy is, against the truth and against another policy, and whether it may replace it."""
