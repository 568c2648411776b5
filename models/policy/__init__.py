"""Policies: how one is built or opened, kept in a folder, and checkpointed while it trains."""
