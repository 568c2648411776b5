"""Data sets: the built-in arithmetic, the readers of a user's own files, and the one prepared form that both end in."""
