"""Data sets that are generated here for the environments: their problems, and demonstrations that solve them."""
