"""Value models: the expected value of the rest of a completion at each of its tokens."""
