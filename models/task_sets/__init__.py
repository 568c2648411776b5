"""Data sets that are made here for the environments: what their problems are, and how somebody solves them."""
