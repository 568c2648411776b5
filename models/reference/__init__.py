"""The reference: what the policy is held against, and how it follows. One file a reference."""
