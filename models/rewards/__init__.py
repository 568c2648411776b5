"""What a completion is worth: the parts of the rewards slot, each a small file."""
